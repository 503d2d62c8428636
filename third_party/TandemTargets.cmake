# tandem_library(<folder> SOURCES ... [DEPENDS <folders>...] [LINK <targets>...])
#   One static library per folder of src, linked with exactly the folders it may include.
# tandem_test(<name> SOURCES ... DEPENDS <folders>... LABELS ... [RANKS n] [TIMEOUT s])
#   A Catch2 executable whose cases ctest lists one by one.

add_library(tandem_flags INTERFACE)
foreach(part CUDA CUDNN NCCL)
  set(TANDEM_${part}_VALUE "false")
  if(TANDEM_HAS_${part})
    set(TANDEM_${part}_VALUE "true")
  endif()
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/include/tandem/base/build_config.h.in"
               "${PROJECT_BINARY_DIR}/generated/tandem/base/build_config.h")
target_include_directories(tandem_flags INTERFACE "${PROJECT_SOURCE_DIR}/include"
                                                  "${PROJECT_BINARY_DIR}/generated")
set(cxx "$<COMPILE_LANGUAGE:CXX>")
target_compile_options(tandem_flags INTERFACE
  "$<${cxx}:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor>"
  # TANDEM_CHECK decomposes a comparison with operator<< on purpose.
  "$<$<AND:${cxx},$<CXX_COMPILER_ID:Clang>>:-Wno-overloaded-shift-op-parentheses>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall>")
if(TANDEM_WERROR)
  target_compile_options(tandem_flags INTERFACE
    "$<${cxx}:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()
# nvcc cannot evaluate fmt's compile-time check of format strings; C++ sources keep it.
target_compile_definitions(tandem_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=;FMT_USE_CONSTEXPR=1>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns of overlapping copies inside std::string that cannot happen (GCC bug 105651).
  target_compile_options(tandem_flags INTERFACE "$<${cxx}:-Wno-restrict>")
endif()
if(TANDEM_SANITIZE STREQUAL "address")
  # Beside its checks g++ 12 to 14 take the inside of std::regex for uninitialised (GCC bug 105616).
  target_compile_options(tandem_flags INTERFACE
    "$<${cxx}:-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer>"
    "$<${cxx}:-Wno-maybe-uninitialized>")
  target_link_options(tandem_flags INTERFACE -fsanitize=address,undefined)
elseif(TANDEM_SANITIZE STREQUAL "thread")
  target_compile_options(tandem_flags INTERFACE "$<${cxx}:-fsanitize=thread>")
  target_link_options(tandem_flags INTERFACE -fsanitize=thread)
elseif(NOT TANDEM_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TANDEM_SANITIZE is \"${TANDEM_SANITIZE}\"; use address, thread or nothing")
endif()

function(tandem_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(tandem_${folder} STATIC ${ARG_SOURCES})
  target_link_libraries(tandem_${folder} PUBLIC tandem_flags fmt::fmt PRIVATE ${ARG_LINK})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(tandem_${folder} PUBLIC tandem_${dependency})
  endforeach()
endfunction()

function(tandem_test name)
  cmake_parse_arguments(ARG "" "RANKS;TIMEOUT" "SOURCES;DEPENDS;LABELS;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tandem_catch_main ${ARG_LINK})
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(${name} PRIVATE tandem_${dependency})
  endforeach()
  target_compile_definitions(${name} PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  list(LENGTH ARG_LABELS num_labels)
  if(NOT num_labels EQUAL 1)   # Catch's script would take a second one for a property
    message(FATAL_ERROR "${name}: give one label, not \"${ARG_LABELS}\"")
  endif()
  set(properties LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS STREQUAL "gpu")   # such a test says so where it finds no GPU; one uses it at a time
    list(APPEND properties SKIP_REGULAR_EXPRESSION "no CUDA device is visible" RESOURCE_LOCK gpu)
  endif()
  catch_discover_tests(${name} TEST_PREFIX "${name}: " PROPERTIES ${properties})
endfunction()
