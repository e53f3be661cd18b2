// moestro bench gemm: the rate of matrix products, which MFU is measured against.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "moestro/cli/command.h"
#include "moestro/cli/options.h"
#include "moestro/core/error.h"
#include "moestro/core/log.h"
#include "moestro/core/table.h"
#include "moestro/core/text.h"
#include "moestro/core/units.h"
#include "moestro/kernels/gemm.h"
#include "moestro/kernels/gemm_peak.h"
#include "moestro/kernels/parallel.h"

namespace moestro::cli {
namespace {

struct BenchArguments {
  std::string what;
  std::vector<int> threads;  // empty: 1 and all cores
  CommonOptions common;
};

bool parse_bench(const Arguments& arguments, BenchArguments& parsed) {
  CLI::App app("Measures what this machine can do.", "moestro bench");
  app.add_option("WHAT", parsed.what, "gemm: matrix products, in f32 and bf16")->required();
  app.add_option_function<std::vector<std::string>>(
         "--threads",
         [&parsed](const std::vector<std::string>& texts) {
           for (const std::string& text : split(join(texts, ","), ',')) {
             parsed.threads.push_back(static_cast<int>(
                 whole_number("--threads", text, {.low = 1, .high = 1024, .example = 2})));
           }
         },
         "thread counts (default: 1 and all cores)")
      ->type_name("INT");
  add_common_options(app, parsed.common);
  if (!parse(app, arguments, parsed.common)) return false;
  if (parsed.what != "gemm") {
    throw input_error(app.get_name(), "expected gemm, got \"{}\"; write moestro bench gemm",
                      printable(parsed.what, 60));
  }
  if (parsed.threads.empty()) {
    const int cores = kernels::available_cores();
    parsed.threads = cores > 1 ? std::vector<int>{1, cores} : std::vector<int>{1};
  }
  return true;
}

struct Rate {
  const char* dtype;
  int threads;
  kernels::GemmPeak peak;
};

std::vector<Rate> measure(const std::vector<int>& thread_counts) {
  std::vector<Rate> rates;
  const int cores = kernels::available_cores();
  for (const int wanted : thread_counts) {
    const int threads = std::min(wanted, cores);
    if (wanted > cores) {
      log_warning("--threads {} is more than the {} cores this process may use: measuring with {}",
                  wanted, cores, cores);
    }
    log_verbose("measuring with {} threads", threads);
    rates.push_back({"f32", threads, kernels::measure_gemm_peak(kernels::GemmType::f32, threads)});
    rates.push_back(
        {"bf16", threads, kernels::measure_gemm_peak(kernels::GemmType::bf16, threads)});
  }
  return rates;
}

Json rates_json(const std::vector<Rate>& rates) {
  Json json = {{"format", "moestro.bench"},
               {"version", 1},
               {"instruction_set", kernels::gemm_instruction_set()},
               {"has_fast_bf16", kernels::has_fast_bf16()},
               {"gemm", Json::array()}};
  for (const Rate& r : rates) {
    json["gemm"].push_back({{"dtype", r.dtype},
                            {"threads", r.threads},
                            {"flops_per_second", r.peak.rate.value()},
                            {"core_share", r.peak.core_share}});
  }
  return json;
}

/// Rates count processor time, so that they hold when the cores are shared; empty where they are
/// not.
std::string shared_cores_text(const std::vector<Rate>& rates) {
  double least = 1.0;
  for (const Rate& r : rates) least = std::min(least, r.peak.core_share);
  if (least >= kernels::kUndisturbedShare) return "";
  return fmt::format(
      "\nOther programs took up to {:.0f} % of the cores; these are the rates without them.\n",
      (1.0 - least) * 100.0);
}

std::string rates_text(const std::vector<Rate>& rates) {
  Table table({"dtype", "threads", "peak"}, {Align::left, Align::right, Align::right});
  for (const Rate& r : rates) {
    table.row({r.dtype, std::to_string(r.threads), to_string(r.peak.rate)});
  }
  return fmt::format("Matrix products, {}\n\n{}{}", kernels::gemm_instruction_set(),
                     table.to_string(), shared_cores_text(rates));
}

}  // namespace

int bench(const Arguments& arguments) {
  BenchArguments parsed;
  if (!parse_bench(arguments, parsed)) return kDone;
  const std::vector<Rate> rates = measure(parsed.threads);
  if (parsed.common.json) {
    print_json(rates_json(rates));
  } else {
    print(rates_text(rates));
  }
  return kDone;
}

}  // namespace moestro::cli
