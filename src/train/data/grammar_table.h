#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

/// The built-in grammar, as data. Every share is in percent. Texts, shares and their order are part of every
/// run's bits: whoever changes them changes what earlier runs have learned.
namespace lockstep::train::grammar {

/// What comes next. A slot of one or many remembers the subject's number until the sentence's verb has come.
enum Slot : uint8_t {
  kSentence,
  kSubjectOne,          // behind "a": an adjective or a noun
  kSubjectMany,         // behind "two" and "all"
  kSubjectAny,          // behind "the": the noun decides the number
  kNounOne,             // behind an adjective
  kNounMany,            //
  kNounAny,             //
  kPostOne,             // behind the noun: a relative clause or the verb
  kPostMany,            //
  kThatOne,             // behind "cat that": "sees it" or "the dogs see"
  kThatMany,            //
  kThatObjectOne,       // behind "cat that sees": "it"
  kThatObjectMany,      //
  kThatEndOne,          // behind "cat that sees it"
  kThatEndMany,         //
  kThatSubjectOne,      // behind "cat that the"
  kThatSubjectMany,     //
  kThatVerbOneOfOne,    // behind "cat that the dog": this verb agrees with the dog, the next with the cat
  kThatVerbManyOfOne,   // behind "cat that the dogs"
  kThatVerbOneOfMany,   //
  kThatVerbManyOfMany,  //
  kVerbOne,             // the sentence's verb, whatever stood between
  kVerbMany,            //
  kObject,              //
  kThing,               // behind "a" and "the"
  kThingNoun,           // behind an adjective
  kThings,              // behind "two" and "all"
  kEnd,                 //
  kSlotCount
};

struct Word {
  std::string_view text;
  uint32_t share;
};

inline constexpr std::array kA{Word{"a ", 100}};
inline constexpr std::array kThe{Word{"the ", 100}};
inline constexpr std::array kCounts{Word{"two ", 55}, Word{"all ", 45}};
inline constexpr std::array kThat{Word{"that ", 100}};
inline constexpr std::array kSpace{Word{" ", 100}};
inline constexpr std::array kStop{Word{".\n", 100}};
inline constexpr std::array kPlaces{Word{" here.\n", 26},  Word{" now.\n", 22},     Word{" at home.\n", 18},
                                    Word{" there.\n", 14}, Word{" in june.\n", 11}, Word{" by day.\n", 9}};
inline constexpr std::array kNamesOne{Word{"he ", 20},  Word{"she ", 18}, Word{"tom ", 14}, Word{"ann ", 12},
                                      Word{"bob ", 11}, Word{"mia ", 9},  Word{"sam ", 8},  Word{"kim ", 8}};
inline constexpr std::array kNamesMany{Word{"we ", 32}, Word{"they ", 28}, Word{"you ", 24}, Word{"i ", 16}};
inline constexpr std::array kPronouns{Word{"it", 24}, Word{"him", 18}, Word{"her", 18},
                                      Word{"me", 16}, Word{"us", 12},  Word{"them", 12}};
inline constexpr std::array kAdjectives{
    Word{"big ", 17}, Word{"red ", 15}, Word{"sad ", 13}, Word{"shy ", 11}, Word{"new ", 10},
    Word{"wet ", 9},  Word{"good ", 8}, Word{"tiny ", 7}, Word{"calm ", 6}, Word{"funny ", 4}};
inline constexpr std::array kNounsOne{Word{"cat ", 16},  Word{"dog ", 15}, Word{"man ", 13}, Word{"boy ", 12},
                                      Word{"girl ", 10}, Word{"fox ", 9},  Word{"bird ", 8}, Word{"king ", 7},
                                      Word{"cow ", 6},   Word{"pig ", 4}};
inline constexpr std::array kNounsMany{
    Word{"cats ", 16}, Word{"dogs ", 15}, Word{"men ", 13},  Word{"boys ", 12}, Word{"girls ", 10},
    Word{"foxes ", 9}, Word{"birds ", 8}, Word{"kings ", 7}, Word{"cows ", 6},  Word{"pigs ", 4}};
inline constexpr std::array kVerbsOne{
    Word{"sees ", 18}, Word{"has ", 15},  Word{"likes ", 13}, Word{"gets ", 12}, Word{"needs ", 10},
    Word{"finds ", 9}, Word{"wants ", 8}, Word{"knows ", 6},  Word{"hugs ", 5},  Word{"draws ", 4}};
inline constexpr std::array kVerbsMany{
    Word{"see ", 18}, Word{"have ", 15}, Word{"like ", 13}, Word{"get ", 12}, Word{"need ", 10},
    Word{"find ", 9}, Word{"want ", 8},  Word{"know ", 6},  Word{"hug ", 5},  Word{"draw ", 4}};
inline constexpr std::array kActsOne{Word{"runs", 26},  Word{"sings", 20}, Word{"naps", 18},
                                     Word{"plays", 15}, Word{"jumps", 12}, Word{"weeps", 9}};
inline constexpr std::array kActsMany{Word{"run", 26},  Word{"sing", 20}, Word{"nap", 18},
                                      Word{"play", 15}, Word{"jump", 12}, Word{"weep", 9}};
inline constexpr std::array kThingNouns{Word{"ball", 16}, Word{"hat", 15}, Word{"cup", 13}, Word{"jar", 12},
                                        Word{"pie", 11},  Word{"key", 10}, Word{"nut", 8},  Word{"toy", 7},
                                        Word{"rose", 5},  Word{"lamp", 3}};
inline constexpr std::array kThingsNouns{
    Word{"balls", 16}, Word{"hats", 15}, Word{"cups", 13}, Word{"jars", 12}, Word{"pies", 11},
    Word{"keys", 10},  Word{"nuts", 8},  Word{"toys", 7},  Word{"roses", 5}, Word{"lamps", 3}};

/// In slot `from`, in `share` percent of the cases, comes a word of `words`, and behind it slot `to`. A
/// slot's words differ from each other before one of them ends, so that a text has one reading.
struct Rule {
  Slot from;
  uint32_t share;
  std::span<const Word> words;
  Slot to;
};

inline constexpr std::array kRules{
    Rule{kSentence, 32, kThe, kSubjectAny},
    Rule{kSentence, 18, kA, kSubjectOne},
    Rule{kSentence, 16, kCounts, kSubjectMany},
    Rule{kSentence, 20, kNamesOne, kVerbOne},
    Rule{kSentence, 14, kNamesMany, kVerbMany},

    Rule{kSubjectOne, 40, kAdjectives, kNounOne},
    Rule{kSubjectOne, 60, kNounsOne, kPostOne},
    Rule{kSubjectMany, 40, kAdjectives, kNounMany},
    Rule{kSubjectMany, 60, kNounsMany, kPostMany},
    Rule{kSubjectAny, 40, kAdjectives, kNounAny},
    Rule{kSubjectAny, 33, kNounsOne, kPostOne},
    Rule{kSubjectAny, 27, kNounsMany, kPostMany},
    Rule{kNounOne, 100, kNounsOne, kPostOne},
    Rule{kNounMany, 100, kNounsMany, kPostMany},
    Rule{kNounAny, 55, kNounsOne, kPostOne},
    Rule{kNounAny, 45, kNounsMany, kPostMany},

    Rule{kPostOne, 24, kThat, kThatOne},
    Rule{kPostOne, 56, kVerbsOne, kObject},
    Rule{kPostOne, 20, kActsOne, kEnd},
    Rule{kPostMany, 24, kThat, kThatMany},
    Rule{kPostMany, 56, kVerbsMany, kObject},
    Rule{kPostMany, 20, kActsMany, kEnd},

    Rule{kThatOne, 30, kVerbsOne, kThatObjectOne},
    Rule{kThatOne, 30, kThe, kThatSubjectOne},
    Rule{kThatOne, 20, kNamesOne, kThatVerbOneOfOne},
    Rule{kThatOne, 20, kNamesMany, kThatVerbManyOfOne},
    Rule{kThatObjectOne, 100, kPronouns, kThatEndOne},
    Rule{kThatEndOne, 100, kSpace, kVerbOne},
    Rule{kThatSubjectOne, 50, kNounsOne, kThatVerbOneOfOne},
    Rule{kThatSubjectOne, 50, kNounsMany, kThatVerbManyOfOne},
    Rule{kThatVerbOneOfOne, 100, kVerbsOne, kVerbOne},
    Rule{kThatVerbManyOfOne, 100, kVerbsMany, kVerbOne},

    Rule{kThatMany, 30, kVerbsMany, kThatObjectMany},
    Rule{kThatMany, 30, kThe, kThatSubjectMany},
    Rule{kThatMany, 20, kNamesOne, kThatVerbOneOfMany},
    Rule{kThatMany, 20, kNamesMany, kThatVerbManyOfMany},
    Rule{kThatObjectMany, 100, kPronouns, kThatEndMany},
    Rule{kThatEndMany, 100, kSpace, kVerbMany},
    Rule{kThatSubjectMany, 50, kNounsOne, kThatVerbOneOfMany},
    Rule{kThatSubjectMany, 50, kNounsMany, kThatVerbManyOfMany},
    Rule{kThatVerbOneOfMany, 100, kVerbsOne, kVerbMany},
    Rule{kThatVerbManyOfMany, 100, kVerbsMany, kVerbMany},

    Rule{kVerbOne, 80, kVerbsOne, kObject},
    Rule{kVerbOne, 20, kActsOne, kEnd},
    Rule{kVerbMany, 80, kVerbsMany, kObject},
    Rule{kVerbMany, 20, kActsMany, kEnd},

    Rule{kObject, 40, kA, kThing},
    Rule{kObject, 18, kThe, kThing},
    Rule{kObject, 20, kCounts, kThings},
    Rule{kObject, 22, kPronouns, kEnd},
    Rule{kThing, 30, kAdjectives, kThingNoun},
    Rule{kThing, 70, kThingNouns, kEnd},
    Rule{kThingNoun, 100, kThingNouns, kEnd},
    Rule{kThings, 100, kThingsNouns, kEnd},
    Rule{kEnd, 70, kStop, kSentence},
    Rule{kEnd, 30, kPlaces, kSentence},
};

/// The shares of a slot's rules, and of a rule's words, add up to 100.
constexpr bool shares_add_up() {
  std::array<uint32_t, kSlotCount> of_slots{};
  for (const Rule& rule : kRules) {
    uint32_t of_words = 0;
    for (const Word& word : rule.words) of_words += word.share;
    if (of_words != 100) return false;
    of_slots[rule.from] += rule.share;
  }
  for (const uint32_t share : of_slots) {
    if (share != 100) return false;
  }
  return true;
}
static_assert(shares_add_up());

}  // namespace lockstep::train::grammar
