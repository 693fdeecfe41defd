# `cmake --install BUILD --prefix P`: the program, its manual pages and completions, a unit for systemd with the paths of P,
# the bundled model and a board for Grafana. Pages and completions are made by the program that is installed.
# Settings go to P/etc/reprise (for /usr: /etc/reprise); those of an earlier installation stay.
install(TARGETS reprise RUNTIME DESTINATION bin)
install(FILES models/reprise-tiny-q8_0.gguf models/mtp-reprise-tiny-q8_0.gguf packaging/grafana.json DESTINATION share/reprise)
install(FILES LICENSE DESTINATION share/doc/reprise)

# What a GPU needs: its devices, which nvidia-modprobe makes where nothing has used the driver since the start.
if(REPRISE_CUDA)
  set(devices "# Only the devices of NVIDIA's driver.
ExecStartPre=-+/usr/bin/nvidia-modprobe -c 0 -u
DevicePolicy=closed")
  foreach(device nvidia nvidiactl nvidia-frontend nvidia-uvm nvidia-caps)
    string(APPEND devices "\nDeviceAllow=char-${device} rw")
  endforeach()
else()
  set(devices "PrivateDevices=yes")
endif()

install(CODE "
  set(devices [[${devices}]])
  set(source [[${PROJECT_SOURCE_DIR}/packaging]])
  set(made [[${PROJECT_BINARY_DIR}/gen/install]])
  set(reprise [[$<TARGET_FILE:reprise>]])
  set(emulator [[${CMAKE_CROSSCOMPILING_EMULATOR}]])")
install(CODE [[
  set(bin ${CMAKE_INSTALL_PREFIX}/bin)
  set(etc ${CMAKE_INSTALL_PREFIX}/etc)
  set(zsh site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(etc /etc)
    set(zsh vendor-completions)
  endif()
  file(REMOVE_RECURSE ${made})
  file(MAKE_DIRECTORY ${made}/man)
  execute_process(COMMAND ${emulator} ${reprise} help --man ${made}/man COMMAND_ERROR_IS_FATAL ANY)
  foreach(shell bash zsh fish)
    execute_process(COMMAND ${emulator} ${reprise} help --completion ${shell} OUTPUT_FILE ${made}/reprise.${shell}
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  set(share ${CMAKE_INSTALL_PREFIX}/share)
  file(GLOB pages ${made}/man/*)
  file(INSTALL ${pages} DESTINATION ${share}/man/man1)
  file(INSTALL ${made}/reprise.bash DESTINATION ${share}/bash-completion/completions RENAME reprise)
  file(INSTALL ${made}/reprise.zsh DESTINATION ${share}/zsh/${zsh} RENAME _reprise)
  file(INSTALL ${made}/reprise.fish DESTINATION ${share}/fish/vendor_completions.d)
  configure_file(${source}/reprise.service.in ${made}/reprise.service @ONLY)
  file(INSTALL ${made}/reprise.service DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
  if(NOT EXISTS $ENV{DESTDIR}${etc}/reprise/reprise.toml)
    file(INSTALL ${source}/reprise.toml DESTINATION ${etc}/reprise)
  endif()]])
