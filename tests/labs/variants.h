#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "lab/checker.h"

namespace lab {

/// Code for a lesson that is not a learner's: its starter, its solution, or a mutant.
struct Variant {
  std::string lesson;  ///< `09_ring_allreduce`
  std::string name;    ///< `starter`, `solution`, or the mutant's file.
  std::function<void(Checker&)> check;
  std::string refused;  ///< The name of the failure by which it must be refused; empty: it must pass.
};

inline void PrintTo(const Variant& variant, std::ostream* stream) {
  *stream << variant.lesson << ' ' << variant.name;
}

/// All of them; the files that CMake makes of the lessons' folders add theirs when the program starts.
inline std::vector<Variant>& variants() {
  static std::vector<Variant> all;
  return all;
}

struct AddVariant {
  explicit AddVariant(Variant variant) { variants().push_back(std::move(variant)); }
};

}  // namespace lab
