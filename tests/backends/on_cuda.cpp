#include "backend.h"

bool tandem::test::tests_cuda() {
  return true;
}
