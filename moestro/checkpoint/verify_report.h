#pragma once
// Completeness proof of a checkpoint: every tensor of the model is stored exactly once, with its
// shape, in a type that can be read and with finite numbers, and nothing else is stored. `moestro
// verify CKPT` prints it.
//
//   const VerifyReport report = verify_complete(HfFolder(path), config);
//   fmt::print("{}", to_text(report));    // report.is_complete()

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "moestro/checkpoint/hf_folder.h"
#include "moestro/checkpoint/usable_numbers.h"
#include "moestro/core/json.h"

namespace moestro::checkpoint {

struct WrongShape {
  std::string name;  // as stored
  std::vector<std::int64_t> expected, got;
};

struct WrongDtype {
  std::string name;  // as stored
  Dtype dtype = Dtype::f32;
};

struct UnusableTensor {
  std::string name;  // as stored
  Unusable numbers;
};

struct VerifyReport {
  std::string folder;
  std::int64_t expected = 0;               // tensors of the model, stacked or not as stored
  std::int64_t found = 0;                  // of these: stored once, with their shape, readable
  std::int64_t elements = 0;               // in those found
  std::map<Dtype, std::int64_t> by_dtype;  // tensors found, by stored type

  // Problems.
  std::vector<std::string> missing;     // in model order
  std::vector<std::string> unexpected;  // stored, but no part of the model; sorted
  std::vector<std::string> repeated;    // stored under their own name and in a stacked tensor
  std::vector<WrongShape> wrong_shapes;
  std::vector<WrongDtype> wrong_dtypes;      // types that do not convert to float
  std::vector<UnusableTensor> unusable;      // with numbers that are not finite
  std::vector<std::string> differing_twins;  // a stored tied head unlike the embedding

  std::string unreadable;      // why the weights cannot be read at all; nothing else is known then
  std::string resume_problem;  // why training could not go on from its own checkpoint

  // Tolerated.
  std::vector<std::string>
      absent_mtp;  // all MTP tensors, when none is stored (transformers drops them)
  std::vector<std::string> extra_mtp;  // MTP tensors of a model whose config has no MTP
  std::vector<std::string> ignored;    // copies that say nothing new: tied head, rotary frequencies
  std::vector<std::string> other_parts;  // of a multi-modal model: towers, projectors

  [[nodiscard]] bool is_complete() const;
};

/// Compares the tensors of a folder with those of a model, and checks what training added to it if
/// it did. Cost: reads every tensor once.
[[nodiscard]] VerifyReport verify_complete(const HfFolder& folder,
                                           const model::ModelConfig& config);

/// Tensors of a folder that are no part of a model, nor tolerated beside it; sorted.
[[nodiscard]] std::vector<std::string> unexpected_tensors(const HfFolder& folder,
                                                          const model::ModelConfig& config);

/// For people: at most `limit` names per kind of problem.
[[nodiscard]] std::string to_text(const VerifyReport& report, std::size_t limit = 20);
/// For programs: everything.
[[nodiscard]] Json to_json(const VerifyReport& report);

}  // namespace moestro::checkpoint
