// Any bytes as a config.json: the reader accepts them or throws Error(input), and a model it
// accepts can be listed and counted.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "moestro/core/error.h"
#include "moestro/core/log.h"
#include "moestro/model/hf_config.h"
#include "moestro/model/ledger.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moestro::set_log_level(moestro::LogLevel::quiet);
  // The one way to see bytes as text.
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moestro::model::HfConfig config = moestro::model::parse_hf_config(text, "config.json");
    const moestro::model::Ledger ledger = moestro::model::make_ledger(config.model, 4096);
    const bool is_sound = ledger.params.total > 0 && ledger.params.active > 0 &&
                          ledger.params.active <= ledger.params.total && ledger.params.mtp >= 0 &&
                          ledger.flops.value() > 0.0;
    if (!is_sound) std::abort();
  } catch (const moestro::Error& error) {
    if (error.kind() != moestro::ErrorKind::input) std::abort();
  }
  return 0;
}
