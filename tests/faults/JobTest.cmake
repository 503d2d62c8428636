# tandem_job_test(<name> <script> <case> <labels>): one case of a Python script that runs tandem the
# way its users do; tests/faults/jobs.py is what the scripts share.
find_package(Python3 QUIET COMPONENTS Interpreter)
tandem_require(Python3_FOUND python3 "Python 3")

set(TANDEM_JOBS "${CMAKE_CURRENT_LIST_DIR}")

function(tandem_job_test name script case labels)
  add_test(NAME "${name}" COMMAND Python3::Interpreter -B "${script}" -v ${case})
  set_tests_properties("${name}" PROPERTIES LABELS "${labels}" TIMEOUT 120
    SKIP_REGULAR_EXPRESSION "OK .skipped=1." ENVIRONMENT
    "TANDEM_BINARY=$<TARGET_FILE:tandem>;TANDEM_MPIRUN=${MPIEXEC_EXECUTABLE};TANDEM_SANITIZE=${TANDEM_SANITIZE};PYTHONPATH=${TANDEM_JOBS}")
endfunction()
