# reprise_embed(<target> <file> <folder>): makes <file>, C++ source that defines reprise::web::kEmbeddedFiles with
# every file under <folder>, and builds it into <target>. A file that is added needs no change anywhere: the
# folder is the list.
function(reprise_embed target output folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFOLDER=${folder} -P ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
