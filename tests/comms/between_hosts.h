#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "comms/run_processes.h"
#include "support/child.h"
#include "support/hosts.h"

namespace lockstep::test {

/// Two hosts, and jobs of two ranks on each: ranks 0 and 1 on host 0, ranks 2 and 3 on host 1.
class BetweenHosts : public testing::Test {
 protected:
  static constexpr int kRanks = 4;

  void SetUp() override {
    if (!Hosts::why_not().empty()) GTEST_SKIP() << Hosts::why_not();
    hosts_.emplace(Hosts::Options{});
  }

  const Hosts& hosts() const { return *hosts_; }

  std::vector<Ended> run(const std::function<std::string(Communicator&)>& act,
                         ProcessesOptions options = {}) {
    options.engine = "gloo";
    options.hosts = &hosts();
    return run_processes(kRanks, act, options);
  }

  /// Something that one process tells others.
  class Sign {
   public:
    explicit Sign(std::filesystem::path file) : file_(std::move(file)) {}
    const std::filesystem::path& file() const { return file_; }
    void give() const { std::ofstream(file_) << "x"; }
    bool is_given() const { return std::filesystem::exists(file_); }
    bool await() const {
      return eventually([this] { return is_given(); });
    }

   private:
    std::filesystem::path file_;
  };
  Sign sign(const std::string& name) const { return Sign(folder_ / name); }

 private:
  std::optional<Hosts> hosts_;
  TemporaryFolder folder_;
};

inline void expect_success(const std::vector<Ended>& ended) {
  for (const auto& rank : ended) {
    EXPECT_EQ(rank.status, 0);
    EXPECT_EQ(rank.text, "");
  }
}

/// One collective whose result shows every rank's part: "" if it is right.
inline std::string check_sum(Communicator& comm, size_t count) {
  std::vector<float> data(count, static_cast<float>(1 << comm.rank()));
  comm.all_reduce(data);
  const auto expected = static_cast<float>((1 << comm.world_size()) - 1);
  for (const float value : data) {
    if (value != expected) return "wrong sum";
  }
  return "";
}

}  // namespace lockstep::test
