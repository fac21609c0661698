#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::lab {

/// One lesson: a folder `labs/NN_name/`, whose `lesson.json` says what is not in its files.
struct Lesson {
  int number = 0;
  std::string name;  ///< Of the folder: `09_ring_allreduce`.
  std::filesystem::path folder;
  std::string title;
  std::string module;             ///< One of Course::modules.
  std::string file;               ///< The learner's, in my_work/: `step09_ring_allreduce.cpp`.
  bool needs_torch = false;       ///< Its code includes LibTorch.
  bool may_call_library = false;  ///< Its code may call Lockstep itself.
  std::vector<int> uses;          ///< Lessons whose code `check --mine` takes in place of the library's.
  std::string starter_fails;      ///< The name of the failure that the starter is refused by.
  std::string
      plan;  ///< The words of `lockstep plan ...` that `view` draws beside the learner's run; "" for none.
};

struct Module {
  std::string name;    ///< As typed: `all-reduce`.
  std::string title;   ///< A few words.
  int fast_track = 0;  ///< The lesson that proves the module's others.
};

/// All lessons of a source tree, in order.
struct Course {
  std::filesystem::path tree;
  std::vector<Module> modules;
  std::vector<Lesson> lessons;

  /// Throws UsageError with what there is.
  const Lesson& lesson(int number) const;
  /// The first whose number is larger; null after the last.
  const Lesson* after(int number) const;
  const Module& module(const std::string& name) const;
};

/// Reads `labs/course.json` and every `labs/NN_name/lesson.json`. Throws Error by file and key for one that
/// is wrong.
Course read_course(const std::filesystem::path& tree);

/// The tree that this command was built in. Throws UsageError if it was not built in one.
std::filesystem::path source_tree();

/// A file of a lesson, whole. Throws Error if it is not there.
std::string read_text(const std::filesystem::path& file);

}  // namespace lockstep::lab
