// The kernels against PyTorch's own operators. The only file here that sees torch.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

int main(int, char**) { return 0; }
