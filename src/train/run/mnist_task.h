#pragma once

#include <filesystem>
#include <memory>

#include "train/run/task.h"

namespace lockstep::train {

/// The digits of images, with a small classifier. `folder` holds the files of the package mnist(). Throws
/// Error, naming the file, if they are no such images and labels.
std::unique_ptr<Task> make_mnist_task(const std::filesystem::path& folder);

}  // namespace lockstep::train
