#pragma once

#include "02_attention/check.h"

namespace lab::attention {

/// The function for itself: which positions it looks at, with which weights.
void check_attention(const Seam& seam, Checker& checker);

/// The loss and the perplexity.
void check_loss(const Seam& seam, Checker& checker);

/// In the library's TinyTransformer: logits, and what a training comes to.
void check_model(const Seam& seam, Checker& checker);

}  // namespace lab::attention
