# tandem_job_tests(<prefix> <script> <class> <labels>): a test for each case of a class of a Python
# script that runs tandem the way its users do; tests/faults/jobs.py is what the scripts share. The
# cases are read from the script, so that none is forgotten. They become <prefix> <case>.
find_package(Python3 QUIET COMPONENTS Interpreter)
tandem_require(Python3_FOUND python3 "Python 3")

set(TANDEM_JOBS "${CMAKE_CURRENT_LIST_DIR}")

function(tandem_job_tests prefix script class labels)
  set(script "${CMAKE_CURRENT_SOURCE_DIR}/${script}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
  file(STRINGS "${script}" lines REGEX "^class |^    def test_")
  set(within "")
  set(found OFF)
  foreach(line IN LISTS lines)
    if(line MATCHES "^class ([A-Za-z]+)")
      set(within ${CMAKE_MATCH_1})
    elseif(within STREQUAL class AND line MATCHES "def (test_[a-z0-9_]+)")
      set(found ON)
      set(name "${prefix} ${CMAKE_MATCH_1}")
      add_test(NAME "${name}" COMMAND Python3::Interpreter -B "${script}" -v ${class}.${CMAKE_MATCH_1})
      set_tests_properties("${name}" PROPERTIES LABELS "${labels}" TIMEOUT 120
        SKIP_REGULAR_EXPRESSION "OK .skipped=1." ENVIRONMENT
        "TANDEM_BINARY=$<TARGET_FILE:tandem>;TANDEM_MPIRUN=${MPIEXEC_EXECUTABLE};TANDEM_SANITIZE=${TANDEM_SANITIZE};PYTHONPATH=${TANDEM_JOBS}")
    endif()
  endforeach()
  if(NOT found)
    message(FATAL_ERROR "${script} has no case in a class ${class}")
  endif()
endfunction()
