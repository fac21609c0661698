// view_samples FOLDER: writes pages of runs that no lesson has: pipeline.html, a 1F1B pipeline just as
// planned; streams.html, ranks that compute while their communication streams talk; narrow.html, blocks of
// one float beside large ones. For the test in the browser.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lab/view.h"
#include "lockstep/plan/pipeline_simulate.h"

namespace {

using namespace lockstep;

struct Trace {
  explicit Trace(int world) {
    json = {{"world", world}, {"time_us", 0}, {"events", nlohmann::json::array()}};
  }

  void add(int rank, int stream, const char* kind, double start, double end, const std::string& text,
           int peer = -1, int count = 0, int place = -1) {
    json["events"].push_back({{"rank", rank},
                              {"stream", stream},
                              {"kind", kind},
                              {"peer", peer},
                              {"count", count},
                              {"place", place},
                              {"start", start},
                              {"end", end},
                              {"text", text}});
    json["time_us"] = std::max(json["time_us"].get<double>(), end);
  }

  nlohmann::json json;
};

constexpr const char* kPipeline = "pipeline --schedule 1f1b --stages 4 --microbatches 8";

Trace pipeline() {
  constexpr double kCycleUs = 10;
  const auto plan = plan::make_pipeline_plan("1f1b", {.ranks = 4, .microbatches = 8});
  const auto times = plan::simulate_pipeline(plan);
  Trace trace(plan.shape.ranks);
  for (size_t rank = 0; rank < plan.actions.size(); ++rank) {
    for (size_t i = 0; i < plan.actions[rank].size(); ++i) {
      const auto& action = plan.actions[rank][i];
      const auto text = fmt::format("{}{}", plan::name(action.kind), action.microbatch);
      trace.add(static_cast<int>(rank), 0,
                action.is_compute() ? "compute"
                : action.is_send()  ? "send"
                                    : "recv",
                times.actions[rank][i].start * kCycleUs, times.actions[rank][i].end * kCycleUs,
                action.is_compute() ? text : "", plan.shape.peer_of(action), action.is_compute() ? 0 : 64);
    }
  }
  return trace;
}

/// Backward of two layers, each all-reduced in halves while the next is computed.
Trace streams() {
  Trace trace(2);
  for (int rank = 0; rank < 2; ++rank) {
    const int other = 1 - rank;
    trace.add(rank, 0, "compute", 0, 10, "forward");
    trace.add(rank, 0, "compute", 10, 20, "backward 1");
    trace.add(rank, 0, "compute", 20, 40, "backward 0");
    for (const int layer : {1, 0}) {
      const double start = layer == 1 ? 20 : 40;
      const int begin = layer * 100;
      trace.add(rank, 1, "send", start, start + 10, "", other, 50, begin + other * 50);
      trace.add(rank, 1, "recv", start, start + 10, "", other, 50, -1);
      trace.add(rank, 1, "send", start + 10, start + 20, "", other, 50, begin + rank * 50);
      trace.add(rank, 1, "recv", start + 10, start + 20, "", other, 50, begin + other * 50);
    }
    trace.add(rank, 0, "note", 60, 60, "optimizer </script><img src=x>");
    trace.add(rank, 0, "compute", 60, 70, "");
  }
  trace.json["verdict"] = {{"passed", false}, {"name", "never received"}, {"what", "made up for the test"}};
  return trace;
}

/// A ring of two ranks that counts its chunks wrongly.
Trace narrow() {
  Trace trace(2);
  for (int rank = 0; rank < 2; ++rank) {
    const int other = 1 - rank;
    trace.add(rank, 0, "send", 0, 1, "", other, 1, 5 + rank);
    trace.add(rank, 0, "recv", 0, 1, "", other, 1, -1);
    trace.add(rank, 0, "send", 1, 2, "", other, 30, 7);
    trace.add(rank, 0, "recv", 1, 2, "", other, 30, 7);
  }
  return trace;
}

void write(const lab::Desk& desk, const std::string& name, const std::string& plan, const Trace& trace) {
  lab::Lesson lesson;
  lesson.number = 99;
  lesson.name = "99_" + name;
  lesson.title = "A made-up run: " + name;
  lesson.plan = plan;
  lab::keep_trace(desk, lesson, trace.json.dump());
  lab::write_view(desk.work / (name + ".html"), lab::view_page(desk.course, lab::view_data(desk, lesson)));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const lab::Desk desk{lab::read_course(LOCKSTEP_TREE), argv[1], {}};
  write(desk, "pipeline", kPipeline, pipeline());
  write(desk, "streams", "", streams());
  write(desk, "narrow", "", narrow());
  return 0;
}
