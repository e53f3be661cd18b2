#pragma once
// Instruction sets chosen at run time: a function marked MOESTRO_CLONES is compiled for baseline
// x86-64, for AVX2 (x86-64-v3) and for AVX-512 (x86-64-v4); the loader picks the best one the CPU
// has. Helpers called in its loops must be [[gnu::always_inline]], so that they are compiled anew
// inside each clone; a lambda or an ordinary function stays at the baseline.
//
//   MOESTRO_CLONES void scale_row(std::int64_t n, float factor, float* row);
//
// Empty under sanitizers (their run time is not up when the loader picks) and for compilers or CPUs
// without the attribute.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(MOESTRO_SANITIZED)
#define MOESTRO_CLONES [[gnu::target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")]]
#else
#define MOESTRO_CLONES
#endif
