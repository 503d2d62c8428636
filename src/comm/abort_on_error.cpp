#include <exception>
#include <new>

#include "tandem/comm/shared_error.h"
#include "tandem/comm/world.h"

namespace tandem {

void abort_on_error(World& world, const std::function<void()>& body) {
  try {
    body();
  } catch (const SharedError&) {
    throw;  // the other ranks throw it too, some a little later
  } catch (const Error& error) {
    world.abort(error.code(), error.what());
    throw;
  } catch (const std::bad_alloc&) {
    world.abort(ExitCode::kMemory, "out of host memory");
    throw;
  } catch (const std::exception& error) {
    world.abort(ExitCode::kInternal, error.what());
    throw;
  } catch (...) {
    world.abort(ExitCode::kInternal, "an exception of unknown type");
    throw;
  }
}

}  // namespace tandem
