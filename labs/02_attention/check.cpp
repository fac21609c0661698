#include "02_attention/check.h"

#include "02_attention/parts.h"

namespace lab::attention {

void check(const Seam& seam, Checker& checker) {
  check_attention(seam, checker);
  check_loss(seam, checker);
  check_model(seam, checker);
}

}  // namespace lab::attention
