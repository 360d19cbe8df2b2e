// Whether a class has a member of a name, whatever its type.
#pragma once

#include <type_traits>

#include "specula/base/compiler_options.hpp"

/// Defines has_NAME<T>(): whether T has a member of this name, of any type, overloaded or not: in a class derived from
/// T and from another class with such a member, the name is ambiguous. A final class cannot be a base, so only
/// a member that is neither overloaded nor a template is found in it.
#define SPECULA_HAS_MEMBER(name)                                                \
  struct name##_member {                                                        \
    int name;                                                                   \
  };                                                                            \
  template <class T>                                                            \
  struct name##_twice : T, name##_member {};                                    \
  template <class T>                                                            \
  consteval bool has_##name() {                                                 \
    if constexpr (std::is_class_v<T> && !std::is_final_v<T>) return !requires { \
        &name##_twice<T>::name;                                                 \
      };                                                                        \
    else                                                                        \
      return requires { &T::name; };                                            \
  }
