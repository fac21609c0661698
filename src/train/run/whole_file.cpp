#include "train/run/whole_file.h"

#include <span>

#include "train/checkpoint/files.h"
#include "train/checkpoint/seal.h"

namespace lockstep::train {

void replace_file(const std::filesystem::path& file, std::string_view text) {
  auto temporary = file;
  temporary += ".tmp";
  remove_tree(temporary);
  write_new_file(temporary, {std::as_bytes(std::span(text))});
  rename_file(temporary, file);
  sync_folder(file.has_parent_path() ? file.parent_path() : ".");
}

}  // namespace lockstep::train
