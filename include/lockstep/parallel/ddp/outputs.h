#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// Calls act(tensor) for every tensor of what a model's forward returns. Known are tensors, and vectors,
/// maps, pairs, tuples and optionals of what is known, and numbers, which hold none. For a type of your own,
/// write an overload in its namespace.
template <typename Act>
void for_each_tensor(const at::Tensor& tensor, const Act& act) {
  act(tensor);
}
template <typename T, typename Act>
requires std::is_arithmetic_v<T>
void for_each_tensor(const T&, const Act&) {}
// All are declared before any is defined: they may contain each other.
template <typename T, typename Act>
void for_each_tensor(const std::vector<T>& all, const Act& act);
template <typename Key, typename T, typename Act>
void for_each_tensor(const std::map<Key, T>& all, const Act& act);
template <typename T, typename Act>
void for_each_tensor(const std::optional<T>& maybe, const Act& act);
template <typename First, typename Second, typename Act>
void for_each_tensor(const std::pair<First, Second>& both, const Act& act);
template <typename... Types, typename Act>
void for_each_tensor(const std::tuple<Types...>& all, const Act& act);

template <typename T, typename Act>
void for_each_tensor(const std::vector<T>& all, const Act& act) {
  for (const auto& each : all) for_each_tensor(each, act);
}
template <typename Key, typename T, typename Act>
void for_each_tensor(const std::map<Key, T>& all, const Act& act) {
  for (const auto& [key, each] : all) for_each_tensor(each, act);
}
template <typename T, typename Act>
void for_each_tensor(const std::optional<T>& maybe, const Act& act) {
  if (maybe) for_each_tensor(*maybe, act);
}
template <typename First, typename Second, typename Act>
void for_each_tensor(const std::pair<First, Second>& both, const Act& act) {
  for_each_tensor(both.first, act);
  for_each_tensor(both.second, act);
}
template <typename... Types, typename Act>
void for_each_tensor(const std::tuple<Types...>& all, const Act& act) {
  std::apply([&](const auto&... each) { (for_each_tensor(each, act), ...); }, all);
}

}  // namespace lockstep
