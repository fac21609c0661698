#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Values as bytes, so that a child process can hand them to its parent: numbers, strings, containers, and
/// structs of these without constructors, of up to ten members.
namespace lab::data {

/// What is left of the bytes that a child has written.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  std::string_view take(size_t count) {
    if (left_.size() < count) throw std::runtime_error("a child's data ends too early");
    const auto taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view left_;
};

/// How a type is written and read. Specialised for other types, such as tensors.
template <typename T>
struct Form;

template <typename T>
void put(std::string& bytes, const T& value) {
  Form<T>::put(bytes, value);
}
template <typename T>
T get(Reader& reader) {
  return Form<T>::get(reader);
}

struct Anything {
  template <typename T>
  operator T() const;
};
template <typename T, typename... Members>
consteval size_t member_count() {
  if constexpr (requires { T{Members{}..., Anything{}}; })
    return member_count<T, Members..., Anything>();
  else
    return sizeof...(Members);
}

/// The members of a struct, as references.
template <typename T>
auto members(T& s) {
  constexpr size_t kCount = member_count<std::remove_const_t<T>>();
  static_assert(kCount >= 1 && kCount <= 10, "a struct of one to ten members");
  if constexpr (kCount == 1) {
    auto& [a] = s;
    return std::tie(a);
  } else if constexpr (kCount == 2) {
    auto& [a, b] = s;
    return std::tie(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = s;
    return std::tie(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = s;
    return std::tie(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = s;
    return std::tie(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    auto& [a, b, c, d, e, f] = s;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    auto& [a, b, c, d, e, f, g] = s;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    auto& [a, b, c, d, e, f, g, h] = s;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = s;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j] = s;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  }
}

/// Structs, pairs, tuples and arrays: one member after the other.
template <typename T>
struct Form {
  static void put(std::string& bytes, const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      std::apply([&](const auto&... members) { (data::put(bytes, members), ...); }, value);
    } else {
      std::apply([&](const auto&... members) { (data::put(bytes, members), ...); }, members(value));
    }
  }
  static T get(Reader& reader) {
    T value{};
    const auto take = [&](auto&... members) {
      ((members = data::get<std::remove_cvref_t<decltype(members)>>(reader)), ...);
    };
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      std::memcpy(&value, reader.take(sizeof value).data(), sizeof value);
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      std::apply(take, value);
    } else {
      std::apply(take, members(value));
    }
    return value;
  }
};

/// Containers: how many, then each.
template <typename T>
concept Container = requires(T value) {
  typename T::value_type;
  value.insert(value.end(), std::declval<typename T::value_type>());
  value.size();
};
template <Container T>
struct Form<T> {
  static void put(std::string& bytes, const T& value) {
    data::put(bytes, static_cast<uint64_t>(value.size()));
    if constexpr (kIsPlain) {
      bytes.append(reinterpret_cast<const char*>(value.data()),
                   value.size() * sizeof(typename T::value_type));
      return;
    }
    for (const typename T::value_type& element : value) data::put(bytes, element);
  }
  static T get(Reader& reader) {
    T value;
    auto left = data::get<uint64_t>(reader);
    if constexpr (kIsPlain) {
      const auto plain = reader.take(left * sizeof(typename T::value_type));
      value.resize(left);
      if (left > 0) std::memcpy(value.data(), plain.data(), plain.size());
      return value;
    }
    for (; left > 0; --left) value.insert(value.end(), element(reader));
    return value;
  }

 private:
  /// Numbers one after the other in memory: large buffers are copied whole.
  static constexpr bool kIsPlain = std::is_arithmetic_v<typename T::value_type> && requires(T value) {
    value.data();
    value.resize(1);
  };

  static auto element(Reader& reader) {
    if constexpr (requires { typename T::mapped_type; }) {  // a map's keys are const
      return data::get<std::pair<typename T::key_type, typename T::mapped_type>>(reader);
    } else {
      return data::get<typename T::value_type>(reader);
    }
  }
};

template <typename T>
struct Form<std::optional<T>> {
  static void put(std::string& bytes, const std::optional<T>& value) {
    data::put(bytes, value.has_value());
    if (value) data::put(bytes, *value);
  }
  static std::optional<T> get(Reader& reader) {
    if (!data::get<bool>(reader)) return std::nullopt;
    return data::get<T>(reader);
  }
};

}  // namespace lab::data
