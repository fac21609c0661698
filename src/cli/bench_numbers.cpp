#include "cli/bench_numbers.h"

#include <fmt/format.h>

#include <fstream>

#include "lockstep/error.h"

namespace lockstep::cli {

void write_numbers(const std::filesystem::path& file, const std::vector<at::Tensor>& tensors) {
  std::ofstream stream(file, std::ios::binary);
  for (const auto& tensor : tensors) {
    const at::Tensor whole = tensor.detach().contiguous();
    stream.write(reinterpret_cast<const char*>(whole.data_ptr<float>()),
                 static_cast<std::streamsize>(whole.nbytes()));
  }
  stream.close();
  if (!stream) throw Error(fmt::format("cannot write {}", file.string()));
}

}  // namespace lockstep::cli
