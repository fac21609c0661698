#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lockstep::lab {

/// The value of a sum of letters and numbers: `2 * (P - 1) * S / P`. Knows + - * / and brackets, and ceil,
/// floor, log2, min, max, pow. Throws Error, naming the place, for anything else.
double evaluate(std::string_view expression, const std::map<std::string, double>& letters);

/// A number as people write it: whole ones without a point, others with three digits that count.
std::string number_text(double value);

}  // namespace lockstep::lab
