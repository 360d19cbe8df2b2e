// SPDX-License-Identifier: MIT
// Whether a class has a member of a name, whatever its type.
#pragma once

#include "specula/base/compiler_options.hpp"

namespace specula::detail {

/// An argument for every parameter, in calls that are only asked about.
struct AnyArgument {
  template <class T>
  operator T() const;
};

}  // namespace specula::detail

/// Defines has_NAME<T>(): whether T has a member of this name that a caller can reach, of any type: one with
/// an address, or, if it is overloaded or a template, one that some arguments call. So a private member is
/// none, nor is a deleted one, nor one that a requires-clause takes away.
#define SPECULA_HAS_MEMBER(name)                                               \
  template <class T>                                                           \
  consteval bool has_##name() {                                                \
    constexpr bool has_address = requires { &T::name; };                       \
    if constexpr (has_address) {                                               \
      return true;                                                             \
    } else {                                                                   \
      using Any = ::specula::detail::AnyArgument;                              \
      constexpr bool by_none = requires(T & t) { t.name(); };                  \
      constexpr bool by_one = requires(T & t, Any & a) { t.name(a); };         \
      constexpr bool by_two = requires(T & t, Any & a) { t.name(a, a); };      \
      constexpr bool by_three = requires(T & t, Any & a) { t.name(a, a, a); }; \
      return by_none || by_one || by_two || by_three;                          \
    }                                                                          \
  }
