#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <memory>

#include "cli/define.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/lab_check.h"
#include "cli/lab_options.h"
#include "lab/page.h"
#include "lab/watch.h"

namespace lockstep::cli {

namespace {

/// Keys come one by one and unseen while one lives.
class KeyByKey {
 public:
  explicit KeyByKey(bool is_on) : is_on_(is_on && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_on_) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  ~KeyByKey() {
    if (is_on_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  KeyByKey(const KeyByKey&) = delete;
  KeyByKey& operator=(const KeyByKey&) = delete;

 private:
  bool is_on_;
  termios before_ = {};
};

/// `lockstep lab` without a word: checks the current lesson whenever its file is saved.
class Watcher {
 public:
  explicit Watcher(const LabOptions& options)
      : is_interactive_(can_ask(options)), style_(lab_style(options)), desk_(lab::open_desk()) {}

  int run() {
    if (desk_.current() == nullptr) {
      fmt::print("{}", lab::progress_text(desk_, style_));
      return 0;
    }
    return until_interrupted([&] { return watch(); });
  }

 private:
  int watch() {
    const KeyByKey keys(is_interactive_);
    begin(*desk_.current());
    lab::FileWatch files(desk_.work);
    check();
    while (true) {
      const auto event = files.wait(is_interactive_, InterruptGuard::interrupted);
      stop_if_interrupted();
      if (event == lab::FileWatch::Event::kSaved) {
        check();
      } else if (!obey()) {
        return 0;
      }
    }
  }

  void begin(const lab::Lesson& lesson) {
    lab::start_lesson(desk_, lesson);
    lesson_ = &lesson;
  }

  void check() {
    clear();
    fmt::print("{}", style_.dim(fmt::format("checking {} ...\n", desk_.file(*lesson_).string())));
    std::fflush(stdout);
    const auto verdict = check_lesson(desk_, *lesson_, {});
    clear();
    fmt::print("{}", lab::verdict_text(desk_, *lesson_, verdict, style_));
    if (is_interactive_) {
      fmt::print("\n{}\n{}", lab::progress_text(desk_, style_),
                 style_.dim("save to check again; h hint, r read, w why, n next lesson, l list, q quit\n"));
    }
    std::fflush(stdout);
  }

  /// One key; false to end.
  bool obey() {
    char key = 'q';
    if (read(STDIN_FILENO, &key, 1) <= 0) return false;
    switch (key) {
      case 'q':
        return false;
      case 'h':
        show(lab::one_more_hint(desk_, *lesson_, style_));
        break;
      case 'r':
        show(lab::page_text(lab::read_text(lesson_->folder / "lesson.md"), style_, false));
        break;
      case 'w':
        show(lab::page_text(lab::read_text(lesson_->folder / "why.md"), style_, true));
        break;
      case 'l':
        show(lab::list_text(desk_, style_));
        break;
      case 'n':
        if (const auto* next = desk_.course.after(lesson_->number)) begin(*next);
        check();
        break;
      default:
        check();
    }
    return true;
  }

  void show(const std::string& text) {
    clear();
    fmt::print("{}\n{}", text, style_.dim("any other key: back to the check\n"));
    std::fflush(stdout);
  }

  void clear() const {
    if (is_interactive_) fmt::print("\x1b[2J\x1b[H");
  }

  bool is_interactive_;
  lab::Style style_;
  lab::Desk desk_;
  const lab::Lesson* lesson_ = nullptr;
};

}  // namespace

Action define_lab(Flags flags) {
  const auto options = std::make_shared<LabOptions>();
  add_plain(flags, *options);
  return [options](const Invocation&) { return Watcher(*options).run(); };
}

}  // namespace lockstep::cli
