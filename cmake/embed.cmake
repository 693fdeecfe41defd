# reprise_embed(<target> <file> <folder>...): makes <file>, C++ source that defines reprise::web::kEmbeddedFiles with
# every file under the folders, and builds it into <target>. A file that is added needs no change anywhere: the
# folders are the list.
function(reprise_embed target output)
  set(files "")
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${folder}/*)
    list(APPEND files ${found})
  endforeach()
  string(REPLACE ";" "," folders "${ARGN}")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFOLDERS=${folders} -P ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
