# What the program is linked to. docs/adr/0013-packages.md says why.
#
#   system    the libraries of this machine
#   portable  the same without fmt, whose soname differs from one distribution to the next: it is compiled in. For
#             packages that serve several distributions.
#   static    everything but the C library is part of the program. For the tarball.
set(REPRISE_LINK system CACHE STRING "Linking: system, portable or static")
set_property(CACHE REPRISE_LINK PROPERTY STRINGS system portable static)
if(NOT REPRISE_LINK MATCHES "^(system|portable|static)$")
  message(FATAL_ERROR "REPRISE_LINK is '${REPRISE_LINK}': choose system, portable or static")
endif()
if(REPRISE_LINK STREQUAL "system")
  set(REPRISE_FMT fmt::fmt)
else()
  # Debian has no archive of it. Its headers contain its functions: one file compiles them, and all others are compiled as for
  # `system`, so that a compiler cache has them already.
  set(source ${PROJECT_BINARY_DIR}/gen/fmt.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <fmt/format-inl.h>
template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref);
template char fmt::detail::decimal_point_impl(fmt::detail::locale_ref);
template fmt::detail::dragonbox::decimal_fp<float> fmt::detail::dragonbox::to_decimal(float) noexcept;
template fmt::detail::dragonbox::decimal_fp<double> fmt::detail::dragonbox::to_decimal(double) noexcept;
")
  set(REPRISE_FMT reprise_fmt)
  add_library(reprise_fmt STATIC ${source})
  foreach(property COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
    set_property(TARGET reprise_fmt PROPERTY ${property} $<TARGET_PROPERTY:fmt::fmt,INTERFACE_${property}>)
    set_property(TARGET reprise_fmt PROPERTY INTERFACE_${property} $<TARGET_PROPERTY:fmt::fmt,INTERFACE_${property}>)
  endforeach()
  add_link_options(LINKER:--as-needed)
endif()
if(REPRISE_LINK STREQUAL "static")
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS TRUE)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
