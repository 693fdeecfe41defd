# reprise_web_library(<folder>): puts the page's libraries into <folder>/assets/lib, from Debian's packages
# libjs-marked (Markdown), libjs-katex and fonts-katex (formulas), node-prismjs (colours in code), with their licences.
# tools/setup.sh installs them. Nothing of theirs is in this tree, and nothing is loaded when the page runs.
set(REPRISE_WEB_LIBRARIES /usr/share CACHE PATH "where javascript/, nodejs/, fonts/ and doc/ of the page's libraries are")

# In this order: a language comes after those that it extends.
set(REPRISE_CODE_LANGUAGES markup css clike javascript typescript jsx tsx python bash c cpp rust go java json yaml sql diff toml
  ini lua regex ruby kotlin swift csharp docker makefile cmake latex r perl haskell powershell scss markdown nginx graphql scala
  markup-templating php julia zig)

function(reprise_web_file source target)
  if(NOT EXISTS ${source})
    message(FATAL_ERROR "The page needs ${source}: run tools/setup.sh, "
      "or install libjs-marked, libjs-katex, fonts-katex and node-prismjs.")
  endif()
  file(REAL_PATH ${source} real)
  configure_file(${real} ${target} COPYONLY)
endfunction()

function(reprise_web_library folder)
  set(from ${REPRISE_WEB_LIBRARIES})
  set(lib ${folder}/assets/lib)
  reprise_web_file(${from}/javascript/marked/marked.umd.min.js ${lib}/marked.js)
  reprise_web_file(${from}/javascript/katex/katex.min.js ${lib}/katex.js)
  reprise_web_file(${from}/javascript/katex/katex.min.css ${lib}/katex.css)
  file(GLOB fonts ${from}/fonts/truetype/katex/*.woff2)
  foreach(font IN LISTS fonts)
    cmake_path(GET font FILENAME name)
    reprise_web_file(${font} ${lib}/fonts/${name})
  endforeach()

  set(parts ${CMAKE_CURRENT_BINARY_DIR}/library)
  set(prism "")
  foreach(language IN ITEMS core LISTS REPRISE_CODE_LANGUAGES)
    reprise_web_file(${from}/nodejs/prismjs/components/prism-${language}.min.js ${parts}/${language}.js)
    file(READ ${parts}/${language}.js text)
    string(APPEND prism "${text};\n")
  endforeach()
  file(WRITE ${parts}/prism.js "${prism}")
  reprise_web_file(${parts}/prism.js ${lib}/prism.js)

  set(licences "Libraries in this page, as Debian's packages have them.\n")
  foreach(package libjs-marked libjs-katex fonts-katex node-prismjs)
    reprise_web_file(${from}/doc/${package}/copyright ${parts}/${package}.txt)
    file(READ ${parts}/${package}.txt text)
    string(APPEND licences "\n==== ${package} ====\n\n${text}")
  endforeach()
  file(WRITE ${parts}/licences.txt "${licences}")
  reprise_web_file(${parts}/licences.txt ${lib}/licences.txt)
endfunction()
