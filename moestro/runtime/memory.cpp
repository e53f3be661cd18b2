#include "moestro/runtime/memory.h"

#include <fstream>
#include <string>

namespace moestro::runtime {

Bytes available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    double kib = 0.0;
    if (word == "MemAvailable:" && info >> kib) return Bytes(kib * 1024.0);
  }
  return Bytes(0.0);
}

bool is_too_much(Bytes needed) {
  const Bytes available = available_memory();
  return available.value() > 0.0 && needed > available;
}

}  // namespace moestro::runtime
