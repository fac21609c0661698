#include "cli/asked_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "cli/interrupt.h"
#include "lockstep/error.h"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

fs::path question_pipe(const fs::path& folder, const std::string& job, int rank) {
  return folder / fmt::format("{}-{}.question", job, rank);
}

fs::path answer_pipe(const fs::path& folder, const std::string& job, int rank) {
  return folder / fmt::format("{}-{}.answer", job, rank);
}

launch::UniqueFd open_pipe(const fs::path& pipe, int mode) {
  launch::UniqueFd fd(open(pipe.c_str(), mode | O_CLOEXEC));
  if (!fd) throw Error(fmt::format("cannot open the pipe {}: {}", pipe.string(), std::strerror(errno)));
  return fd;
}

/// Open for both directions, so that opening waits for nobody and writing meets no closed end.
launch::UniqueFd make_pipe(const fs::path& pipe, int mode) {
  if (mkfifo(pipe.c_str(), 0600) != 0)
    throw Error(fmt::format("cannot make the pipe {}: {}", pipe.string(), std::strerror(errno)));
  return open_pipe(pipe, O_RDWR | mode);
}

void write_line(int fd, const nlohmann::json& document) {
  const std::string line = document.dump() + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = write(fd, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(fmt::format("cannot write to a pipe: {}", std::strerror(errno)));
    done += static_cast<size_t>(count);
  }
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const auto& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

double number_of(const nlohmann::json& json) {
  return json.is_number() ? json.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<std::string> LineReader::read_some() {
  const auto take = [this]() -> std::optional<std::string> {
    const auto end = buffer_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return line;
  };
  if (auto line = take()) return line;
  char block[65536];
  const ssize_t count = read(fd_, block, sizeof block);
  if (count == 0) ended_ = true;
  if (count < 0 && errno != EINTR && errno != EAGAIN)
    throw Error(fmt::format("cannot read from a pipe: {}", std::strerror(errno)));
  if (count > 0) buffer_.append(block, static_cast<size_t>(count));
  return take();
}

AskedJob::AskedJob(const Options& options)
    : name_(options.name), log_(options.folder / fmt::format("{}.log", options.name)) {
  for (int rank = 0; rank < options.world; ++rank) {
    auto question = make_pipe(question_pipe(options.folder, name_, rank), 0);
    auto answer = make_pipe(answer_pipe(options.folder, name_, rank), O_NONBLOCK);
    const int fd = answer.get();
    ranks_.push_back(
        {.question = std::move(question), .answer = std::move(answer), .reader = LineReader(fd)});
  }
  start(options);
}

void AskedJob::start(const Options& options) {
  // The ranks end with this command, however it ends.
  std::vector<std::string> words = {"setpriv",
                                    "--pdeathsig",
                                    "TERM",
                                    options.command.string(),
                                    "run",
                                    "--standalone",
                                    "--nproc-per-node",
                                    std::to_string(options.world),
                                    "--tee",
                                    "0",
                                    "--log-dir",
                                    (options.folder / fmt::format("{}-logs", name_)).string(),
                                    "--"};
  words.insert(words.end(), options.program.begin(), options.program.end());
  std::vector<std::string> settings;
  for (const auto& [name, value] : options.environment) settings.push_back(fmt::format("{}={}", name, value));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int error = posix_spawnp(&launcher_, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                                 pointers(settings).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(fmt::format("cannot start {}: {}", words[0], std::strerror(error)));
}

AskedJob::~AskedJob() {
  ranks_.clear();
  if (ends_within(std::chrono::seconds(2))) return;
  kill(launcher_, SIGTERM);
  if (ends_within(std::chrono::seconds(15))) return;
  kill(launcher_, SIGKILL);
  waitpid(launcher_, nullptr, 0);
}

bool AskedJob::has_ended() {
  if (launcher_ > 0 && waitpid(launcher_, nullptr, WNOHANG) == launcher_) launcher_ = -1;
  return launcher_ < 0;
}

bool AskedJob::ends_within(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!has_ended()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    poll(nullptr, 0, 2);
  }
  return true;
}

void AskedJob::fail(const std::string& what) const {
  std::ifstream stream(log_);
  std::stringstream said;
  said << stream.rdbuf();
  throw Error(fmt::format("{}: {}; it said:\n{}", name_, what, said.str()));
}

std::vector<nlohmann::json> AskedJob::ask(const nlohmann::json& question, std::chrono::seconds limit) {
  for (const auto& rank : ranks_) write_line(rank.question.get(), question);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<nlohmann::json> answers(ranks_.size());
  for (size_t missing = ranks_.size(); missing > 0;) {
    std::vector<pollfd> waiting;
    for (size_t i = 0; i < ranks_.size(); ++i)
      waiting.push_back(
          {.fd = answers[i].is_null() ? ranks_[i].answer.get() : -1, .events = POLLIN, .revents = 0});
    poll(waiting.data(), waiting.size(), 200);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      if (const auto line = ranks_[i].reader.read_some()) {
        answers[i] = nlohmann::json::parse(*line);
        --missing;
      }
    }
    stop_if_interrupted();  // perhaps the ranks were too
    if (missing > 0 && has_ended()) fail("its ranks ended early");
    if (missing > 0 && std::chrono::steady_clock::now() > deadline)
      fail(fmt::format("no answer to {} within {} s", question.dump(), limit.count()));
  }
  return answers;
}

AskedRank::AskedRank(const fs::path& folder, const std::string& job, int rank)
    : question_(open_pipe(question_pipe(folder, job, rank), O_RDONLY)),
      answer_(open_pipe(answer_pipe(folder, job, rank), O_WRONLY)),
      reader_(question_.get()) {}

std::optional<nlohmann::json> AskedRank::next() {
  while (!reader_.ended()) {
    if (const auto line = reader_.read_some()) return nlohmann::json::parse(*line);
  }
  return std::nullopt;
}

void AskedRank::answer(const nlohmann::json& answer) {
  write_line(answer_.get(), answer);
}

}  // namespace lockstep::cli
