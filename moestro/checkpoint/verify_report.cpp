#include "moestro/checkpoint/verify_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "moestro/checkpoint/training_state.h"
#include "moestro/core/text.h"

namespace moestro::checkpoint {
namespace {

constexpr std::string_view kMtpProjection = "eh_proj.weight";  // only MTP layers have one
constexpr std::string_view kRotaryBuffer = "rotary_emb.inv_freq";
/// What multi-modal checkpoints of transformers call the parts beside the language model, at the
/// root or below "model.".
constexpr std::array<std::string_view, 17> kOtherParts = {
    "visual.",         "vision_tower.",         "vision_model.",
    "vision_encoder.", "vision_embed_",         "vision_adapter",
    "embed_vision.",   "image_encoder.",        "image_newline",
    "video_tower.",    "audio_tower.",          "audio_model.",
    "audio_encoder.",  "embed_audio.",          "audio_projector.",
    "mm_projector.",   "multi_modal_projector."};

/// Places where a tensor is stored; more than one means that it is stored twice.
int places(const HfFolder& folder, const model::ModelConfig& config,
           const model::TensorSpec& spec) {
  int count = folder.has(spec.name) ? 1 : 0;
  for (const auto& place : model::alternative_locations(config, spec)) {
    count += folder.has(place.name) ? 1 : 0;
  }
  return count;
}

/// Checks one tensor of the model and remembers which stored tensor it used.
void verify_tensor(const HfFolder& folder, const model::ModelConfig& config,
                   const model::TensorSpec& spec, VerifyReport& report,
                   std::set<std::string>& used) {
  const auto place = folder.locate(config, spec);
  if (!place) {
    report.missing.push_back(spec.name);
    return;
  }
  const bool is_first_use = used.insert(place->name).second;
  const TensorInfo& stored = folder.info(place->name);
  const bool has_shape = stored.shape == place->shape;
  const bool is_readable = converts_to_float(stored.dtype);
  const bool is_repeated = places(folder, config, spec) > 1;
  // A stacked tensor is used by many; its problems are reported once.
  if (!has_shape && is_first_use)
    report.wrong_shapes.push_back({stored.name, place->shape, stored.shape});
  if (!is_readable && is_first_use) report.wrong_dtypes.push_back({stored.name, stored.dtype});
  if (is_readable && is_first_use) {
    const Unusable numbers = find_unusable(folder.file_of(place->name), place->name);
    if (numbers.count > 0) report.unusable.push_back({stored.name, numbers});
  }
  if (is_repeated) report.repeated.push_back(spec.name);
  if (!has_shape || !is_readable || is_repeated) return;
  ++report.found;
  ++report.by_dtype[stored.dtype];
  report.elements += spec.elements();
}

/// The layers whose names start "model.layers.61.", where one tensor shows that they are MTP.
std::vector<std::string> mtp_prefixes(const std::vector<std::string>& names) {
  std::vector<std::string> prefixes = {"mtp.", "model.mtp."};
  for (const std::string& name : names) {
    if (name.ends_with(kMtpProjection))
      prefixes.push_back(name.substr(0, name.size() - kMtpProjection.size()));
  }
  return prefixes;
}

bool is_of_other_part(std::string_view name) {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  return std::any_of(kOtherParts.begin(), kOtherParts.end(),
                     [&](std::string_view part) { return name.starts_with(part); });
}

/// Sorts stored tensors that the model does not have into tolerated and unexpected ones.
void classify_rest(const HfFolder& folder, const model::ModelConfig& config,
                   const std::set<std::string>& used, VerifyReport& report) {
  const std::vector<std::string> names = folder.names();
  const std::vector<std::string> mtp = mtp_prefixes(names);
  const std::string twin = tied_head(folder, config);
  const auto is_mtp = [&](const std::string& name) {
    return std::any_of(mtp.begin(), mtp.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  for (const std::string& name : names) {
    if (used.contains(name)) continue;
    if (name.ends_with(kRotaryBuffer) || name == twin) {
      report.ignored.push_back(name);
    } else if (config.mtp.layers == 0 && is_mtp(name)) {
      report.extra_mtp.push_back(name);
    } else if (is_of_other_part(name)) {
      report.other_parts.push_back(name);
    } else {
      report.unexpected.push_back(name);
    }
  }
}

/// Checks that a head that is stored beside tied embeddings says the same.
void verify_twin(const HfFolder& folder, const model::ModelConfig& config,
                 const model::TensorSpec& embedding, VerifyReport& report) {
  const auto place = folder.locate(config, embedding);
  const std::string twin = tied_head(folder, config);
  if (!place || twin.empty()) return;
  const bool is_readable = converts_to_float(folder.info(place->name).dtype) &&
                           converts_to_float(folder.info(twin).dtype);
  if (!is_readable || !has_equal_values(folder, place->name, twin)) {
    report.differing_twins.push_back(twin);
  }
}

/// One kind of finding as lines: a heading with the count, then the names, indented.
std::string section(std::string_view title, const std::vector<std::string>& lines,
                    std::size_t limit) {
  if (lines.empty()) return "";
  std::string text = fmt::format("  {}: {}\n", title, lines.size());
  for (std::size_t i = 0; i < std::min(limit, lines.size()); ++i) {
    text += fmt::format("    {}\n", printable(lines[i], 200));
  }
  if (lines.size() > limit) text += fmt::format("    and {} more\n", lines.size() - limit);
  return text;
}

std::vector<std::string> lines(const std::vector<WrongShape>& tensors) {
  std::vector<std::string> text;
  text.reserve(tensors.size());
  for (const WrongShape& t : tensors) {
    text.push_back(
        fmt::format("{}: expected {}, got {}", t.name, shape_text(t.expected), shape_text(t.got)));
  }
  return text;
}

std::vector<std::string> lines(const std::vector<WrongDtype>& tensors) {
  std::vector<std::string> text;
  text.reserve(tensors.size());
  for (const WrongDtype& t : tensors)
    text.push_back(fmt::format("{}: {}", t.name, to_string(t.dtype)));
  return text;
}

std::vector<std::string> lines(const std::vector<UnusableTensor>& tensors) {
  std::vector<std::string> text;
  text.reserve(tensors.size());
  for (const UnusableTensor& t : tensors)
    text.push_back(fmt::format("{}: {}", t.name, to_text(t.numbers)));
  return text;
}

std::string dtypes_text(const std::map<Dtype, std::int64_t>& by_dtype) {
  std::vector<std::string> parts;
  parts.reserve(by_dtype.size());
  for (const auto& [dtype, count] : by_dtype)
    parts.push_back(fmt::format("{} {}", with_thousands(count), to_string(dtype)));
  return join(parts, ", ");
}

}  // namespace

bool VerifyReport::is_complete() const {
  return unreadable.empty() && missing.empty() && unexpected.empty() && repeated.empty() &&
         wrong_shapes.empty() && wrong_dtypes.empty() && unusable.empty() &&
         differing_twins.empty() && resume_problem.empty();
}

VerifyReport verify_complete(const HfFolder& folder, const model::ModelConfig& config) {
  const std::vector<model::TensorSpec> specs = model::tensors(config);
  const auto is_mtp = [](const model::TensorSpec& spec) {
    return spec.component == model::Component::mtp;
  };
  const bool has_mtp = std::any_of(specs.begin(), specs.end(), [&](const model::TensorSpec& spec) {
    return is_mtp(spec) && folder.locate(config, spec);
  });
  VerifyReport report;
  report.folder = folder.path().string();
  std::set<std::string> used;
  for (const model::TensorSpec& spec : specs) {
    if (is_mtp(spec) && !has_mtp) {
      report.absent_mtp.push_back(spec.name);
      continue;
    }
    for (const model::TensorSpec& piece : folder.stored_pieces(config, spec)) {
      ++report.expected;
      verify_tensor(folder, config, piece, report, used);
    }
    if (spec.role == model::Role::embedding) verify_twin(folder, config, spec, report);
  }
  classify_rest(folder, config, used, report);
  report.resume_problem = why_not_resumable(folder, config);
  return report;
}

std::vector<std::string> unexpected_tensors(const HfFolder& folder,
                                            const model::ModelConfig& config) {
  std::set<std::string> used;
  for (const model::TensorSpec& spec : model::tensors(config)) {
    for (const model::TensorSpec& piece : folder.stored_pieces(config, spec)) {
      const auto place = folder.locate(config, piece);
      if (place) used.insert(place->name);
    }
  }
  VerifyReport report;
  classify_rest(folder, config, used, report);
  return report.unexpected;
}

std::string to_text(const VerifyReport& report, std::size_t limit) {
  std::string text = fmt::format("{}: {}\n", printable(report.folder, std::string::npos),
                                 report.is_complete() ? "complete" : "not complete");
  if (!report.unreadable.empty()) {
    return text + fmt::format("  cannot be read: {}\n", report.unreadable);
  }
  text += fmt::format("  tensors: {} of {}{}{}\n", with_thousands(report.found),
                      with_thousands(report.expected), report.found > 0 ? ", " : "",
                      dtypes_text(report.by_dtype));
  text += fmt::format("  elements: {}\n", with_thousands(report.elements));
  text += section("missing", report.missing, limit);
  text += section("unexpected", report.unexpected, limit);
  text += section("stored twice", report.repeated, limit);
  text += section("wrong shape", lines(report.wrong_shapes), limit);
  text += section("type that cannot be read as float", lines(report.wrong_dtypes), limit);
  text += section("tensors with numbers that are not finite", lines(report.unusable), limit);
  text += section("tied head unlike the embedding", report.differing_twins, limit);
  if (!report.resume_problem.empty()) {
    text += fmt::format("  training cannot go on from it: {}\n", report.resume_problem);
  }
  text += section("tolerated, MTP tensors that are not stored", report.absent_mtp, limit);
  text += section("tolerated, MTP tensors beyond the config", report.extra_mtp, limit);
  text += section("tolerated, redundant", report.ignored, limit);
  if (!report.other_parts.empty()) {
    text += fmt::format("  not part of the language model, ignored: {}\n",
                        with_thousands(static_cast<std::int64_t>(report.other_parts.size())));
  }
  return text;
}

Json to_json(const VerifyReport& report) {
  Json by_dtype = Json::object();
  for (const auto& [dtype, count] : report.by_dtype) by_dtype[to_string(dtype)] = count;
  Json wrong_shapes = Json::array();
  for (const WrongShape& t : report.wrong_shapes) {
    wrong_shapes.push_back({{"name", t.name}, {"expected", t.expected}, {"got", t.got}});
  }
  Json wrong_dtypes = Json::array();
  for (const WrongDtype& t : report.wrong_dtypes) {
    wrong_dtypes.push_back({{"name", t.name}, {"dtype", to_string(t.dtype)}});
  }
  Json unusable = Json::array();
  for (const UnusableTensor& t : report.unusable) {
    unusable.push_back({{"name", t.name}, {"count", t.numbers.count}, {"first", t.numbers.first}});
  }
  return {
      {"format", "moestro.verify"},
      {"version", 1},
      {"folder", report.folder},
      {"complete", report.is_complete()},
      {"tensors", {{"expected", report.expected}, {"found", report.found}, {"by_dtype", by_dtype}}},
      {"elements", report.elements},
      {"unreadable", report.unreadable.empty() ? Json() : Json(report.unreadable)},
      {"missing", report.missing},
      {"unexpected", report.unexpected},
      {"repeated", report.repeated},
      {"wrong_shapes", wrong_shapes},
      {"wrong_dtypes", wrong_dtypes},
      {"not_finite", unusable},
      {"differing_twins", report.differing_twins},
      {"resume_problem", report.resume_problem.empty() ? Json() : Json(report.resume_problem)},
      {"tolerated",
       {{"absent_mtp", report.absent_mtp},
        {"extra_mtp", report.extra_mtp},
        {"ignored", report.ignored},
        {"not_language_model", report.other_parts}}}};
}

}  // namespace moestro::checkpoint
