#include "moestro/layers/torch_setup.h"

#include <ATen/Context.h>

#include "moestro/layers/caching_allocator.h"

namespace moestro::layers {

void set_up_torch() {
  install_caching_allocator();
  at::globalContext().setUserEnabledMkldnn(false);
}

}  // namespace moestro::layers
