#include "01_train_step/check.h"

#include "01_train_step/parts.h"

namespace lab::baseline {

void check(const Seam& seam, Checker& checker) {
  check_step(seam, checker);
  check_train(seam, checker);
}

}  // namespace lab::baseline
