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
if(NOT REPRISE_LINK STREQUAL "system")
  set_property(TARGET fmt::fmt APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
  add_link_options(LINKER:--as-needed)
endif()
if(REPRISE_LINK STREQUAL "static")
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS TRUE)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
