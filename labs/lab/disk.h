#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lab {

using Bytes = std::vector<std::byte>;

/// One folder of files, as a program sees it through the system. What is written is in memory at first;
/// whether and when the disk gets it is for the system to say, unless one asks.
///
/// A call that cannot be done throws std::runtime_error.
class Disk {
 public:
  virtual ~Disk() = default;

  virtual bool exists(const std::string& name) const = 0;
  /// All of a file; none if there is no such file.
  virtual std::optional<Bytes> read(const std::string& name) const = 0;

  /// Opens a file for writing. It is empty then, whatever was in it before.
  virtual void create(const std::string& name) = 0;
  /// Adds to the end of an open file.
  virtual void append(const std::string& name, std::span<const std::byte> bytes) = 0;
  /// Returns when the disk has the contents of an open file. Its name may still be missing.
  virtual void fsync(const std::string& name) = 0;
  virtual void close(const std::string& name) = 0;

  /// A file gets another name, at once; a file that had it is gone.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& name) = 0;
  /// Returns when the disk has the names of the folder: all that were created, renamed and removed.
  virtual void fsync_folder() = 0;
};

/// What a simulated disk throws when the power goes. Nothing to catch: the program is dead.
struct PowerCut {};

/// A disk in memory that keeps what is safe apart from what was only written, and whose power can be cut.
///
/// It is as mean as POSIX allows: after a cut, of data that was not synced there may be all, half, zeros or
/// nothing; of the folder's changes since its last sync any. A rename is whole or not there.
class SimulatedDisk : public Disk {
 public:
  /// A call that changes something, for telling what happened.
  struct Call {
    std::string text;          ///< "append state.tmp, 88 bytes"
    size_t bytes = 0;          ///< Of an append.
    bool empties = false;      ///< A create that emptied a file that was there.
    bool removes = false;      ///< A remove.
    bool is_unsynced = false;  ///< A rename of a file whose contents were not synced.
  };

  bool exists(const std::string& name) const override;
  std::optional<Bytes> read(const std::string& name) const override;
  void create(const std::string& name) override;
  void append(const std::string& name, std::span<const std::byte> bytes) override;
  void fsync(const std::string& name) override;
  void close(const std::string& name) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& name) override;
  void fsync_folder() override;

  /// The power goes when this many calls are done, and, if the next one is an append, so many bytes of it.
  void cut_after(size_t calls, size_t bytes);
  bool is_dead() const { return is_dead_; }
  const std::vector<Call>& calls() const { return calls_; }
  void forget_calls() { calls_.clear(); }
  std::vector<std::string> open_files() const;
  std::vector<std::string> names() const;
  bool has_unsynced_names() const { return !changes_.empty(); }

  /// What may be there when the power is back, each with words for it.
  struct Outcome;
  std::vector<Outcome> outcomes() const;

  /// An equal disk that shares nothing with this one; as after a sync of everything.
  SimulatedDisk synced_copy() const;
  /// Puts other bytes into a file, behind everybody's back.
  void damage(const std::string& name, Bytes bytes);

 private:
  struct File {
    Bytes cached, durable;
    bool is_open = false;
    bool is_dirty() const { return cached != durable; }
  };
  using Names = std::map<std::string, std::shared_ptr<File>>;
  /// What happened to the folder in one call: names that got a file, or lost theirs (null).
  using Change = std::vector<std::pair<std::string, std::shared_ptr<File>>>;
  enum class Unsynced : uint8_t { kLost, kKept, kHalf, kZeros };

  Call& begin(std::string text);
  File& open_file(const std::string& name, const char* what) const;
  void apply(Change change);
  static Bytes survivor(const File& file, Unsynced unsynced);
  static SimulatedDisk disk_of(const Names& names, Unsynced unsynced);

  Names names_, durable_names_;
  std::vector<Change> changes_;  ///< Since the folder was synced.
  std::vector<Call> calls_;
  std::optional<size_t> cut_calls_;
  size_t cut_bytes_ = 0;
  bool is_dead_ = false;
};

struct SimulatedDisk::Outcome {
  SimulatedDisk disk;
  std::string text;
};

/// A folder of the real disk. A process that holds it is killed by SIGKILL when `kill_after` points are
/// passed: before each call, and after every 16 bytes of an append.
class FolderDisk : public Disk {
 public:
  static constexpr size_t kNever = SIZE_MAX;
  explicit FolderDisk(std::string folder, size_t kill_after = kNever);
  FolderDisk(const FolderDisk&) = delete;
  FolderDisk& operator=(const FolderDisk&) = delete;
  ~FolderDisk() override;

  bool exists(const std::string& name) const override;
  std::optional<Bytes> read(const std::string& name) const override;
  void create(const std::string& name) override;
  void append(const std::string& name, std::span<const std::byte> bytes) override;
  void fsync(const std::string& name) override;
  void close(const std::string& name) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& name) override;
  void fsync_folder() override;

 private:
  void point();
  std::string path(const std::string& name) const;
  int open_fd(const std::string& name, const char* what) const;

  std::string folder_;
  size_t points_left_;
  std::map<std::string, int> open_;
};

}  // namespace lab
