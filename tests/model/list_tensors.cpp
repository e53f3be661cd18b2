// list_tensors FILE... prints, per config.json, a line of JSON: {"file", "total", "tensors"} or
// {"file", "error"}. What tools/count_with_transformers.py compares with transformers.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "moestro/core/error.h"
#include "moestro/core/json.h"
#include "moestro/model/hf_config.h"
#include "moestro/model/ledger.h"
#include "moestro/model/tensors.h"

namespace {

moestro::Json list(const char* file) {
  moestro::Json line{{"file", file}};
  try {
    const auto config = moestro::model::read_hf_config(file).model;
    line["total"] = moestro::model::make_ledger(config, 1).params.total;
    for (const auto& tensor : moestro::model::tensors(config)) {
      line["tensors"][tensor.name] = tensor.shape;
    }
  } catch (const moestro::Error& error) {
    line["error"] = error.what();
  }
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::printf("%s\n", list(argv[i]).dump().c_str());
  return 0;
}
