#include "moestro/core/fields.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "moestro/core/error.h"
#include "moestro/core/rng.h"

namespace moestro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Colour { red, green };

struct Settings {
  bool loud = false;
  std::int64_t steps = 100;
  double rate = 0.5;
  std::array<double, 2> pair = {0.9, 0.95};
  std::string title;
  std::string file;
  std::string model;
  std::vector<std::string> texts;
  std::vector<std::string> tags;
  Colour colour = Colour::red;
};

Fields fields(Settings& s) {
  return {{"run",
           "How long.",
           {{"loud", &s.loud, "says more"},
            {"steps", &s.steps, "how many", at_least(1)},
            {"rate", &s.rate, "how fast", between(0, 1)},
            {"pair", &s.pair, "two of them", from_below(0, 1)},
            {"title", &s.title, "a title"}}},
          {"files",
           "From where.",
           {{"file", path(s.file), "a file"},
            {"model", path_or_name(s.model), "a model"},
            {"texts", paths(s.texts), "texts"},
            {"tags", &s.tags, "tags"},
            {"colour", choice<Colour>(s.colour, {{"red", Colour::red}, {"green", Colour::green}}),
             "a colour"}}}};
}

Settings parsed(const std::string& toml, const std::string& file = "run.toml") {
  Settings settings;
  Origins origins;
  parse_fields(toml, file, fields(settings), origins);
  return settings;
}

Settings overridden(const std::string& text) {
  Settings settings;
  Origins origins;
  apply_override(text, fields(settings), origins);
  return settings;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "no error";
}
std::string toml_error(const std::string& toml) {
  return error_of([&] { static_cast<void>(parsed(toml)); });
}
std::string set_error(const std::string& text) {
  return error_of([&] { static_cast<void>(overridden(text)); });
}

TEST(Fields, ReadEveryType) {
  const Settings s = parsed(R"(
[run]
loud = true
steps = 7
rate = 1
pair = [0, 0.5]
title = "a \"b\""
[files]
file = "/abs/x"
model = "name"
texts = ["/a", "/b"]
tags = ["x", "y"]
colour = "green"
)");
  EXPECT_TRUE(s.loud);
  EXPECT_EQ(s.steps, 7);
  EXPECT_EQ(s.rate, 1.0);
  EXPECT_EQ(s.pair[1], 0.5);
  EXPECT_EQ(s.title, "a \"b\"");
  EXPECT_EQ(s.file, "/abs/x");
  EXPECT_EQ(s.model, "name");
  EXPECT_THAT(s.texts, ElementsAre("/a", "/b"));
  EXPECT_THAT(s.tags, ElementsAre("x", "y"));
  EXPECT_EQ(s.colour, Colour::green);
}

TEST(Fields, KeepDefaultsOfAbsentKeys) {
  const Settings s = parsed("");
  EXPECT_EQ(s.steps, 100);
  EXPECT_EQ(s.colour, Colour::red);
}

TEST(Fields, AcceptDottedKeysAndInlineTables) {
  EXPECT_EQ(parsed("run.steps = 3").steps, 3);
  EXPECT_EQ(parsed("run = { steps = 4 }").steps, 4);
}

TEST(Fields, MakePathsRelativeToTheFile) {
  const Settings s =
      parsed("[files]\nfile = \"x/../y\"\ntexts = [\"t\"]\nmodel = \"m/c.json\"", "conf/run.toml");
  EXPECT_EQ(s.file, "conf/y");
  EXPECT_THAT(s.texts, ElementsAre("conf/t"));
  EXPECT_EQ(s.model, "conf/m/c.json");
  EXPECT_EQ(parsed("[files]\nfile = \"\"", "conf/run.toml").file, "");
}

TEST(Fields, KeepNamesThatAreNoFiles) {
  EXPECT_EQ(parsed("[files]\nmodel = \"deepseek-v3\"", "conf/run.toml").model, "deepseek-v3");
}

TEST(Fields, KeepPathsOfOverrides) {
  EXPECT_EQ(overridden("files.file=x/y").file, "x/y");
}

/// HOME as a test wants it, null for none, until the end of the test.
class HomeGuard {
 public:
  explicit HomeGuard(const char* home) {
    if (const char* before = std::getenv("HOME")) before_ = before;
    set(home);
  }
  HomeGuard(const HomeGuard&) = delete;
  HomeGuard& operator=(const HomeGuard&) = delete;
  ~HomeGuard() { set(before_ ? before_->c_str() : nullptr); }

 private:
  static void set(const char* home) {
    if (home == nullptr) {
      ::unsetenv("HOME");
    } else {
      ::setenv("HOME", home, 1);
    }
  }
  std::optional<std::string> before_;
};

TEST(Fields, TakeATildeForTheHomeFolder) {
  const HomeGuard home("/home/me");
  const Settings s = parsed(
      "[files]\nfile = \"~/x\"\nmodel = \"~\"\ntexts = [\"a~\", \"~/\", \"./~/b\"]\ntags = "
      "[\"~/t\"]",
      "conf/run.toml");
  EXPECT_EQ(s.file, "/home/me/x");
  EXPECT_EQ(s.model, "/home/me");
  EXPECT_THAT(s.texts, ElementsAre("conf/a~", "/home/me/", "conf/~/b"));
  EXPECT_THAT(s.tags, ElementsAre("~/t")) << "no path";
  EXPECT_EQ(overridden("files.file=~/x").file, "/home/me/x");
  EXPECT_THAT(overridden("files.texts=[\"~/a\", \"b\"]").texts, ElementsAre("/home/me/a", "b"));
}

TEST(Fields, RejectATildeThatNamesNoFolder) {
  EXPECT_EQ(
      set_error("files.file=~you/x"),
      "[--set files.file] expected / after ~, got \"~you/x\"; write the folder in full, or ./ "
      "before a name that begins with ~");
  EXPECT_THAT(toml_error("[files]\ntexts = [\"~you\"]"), HasSubstr("[run.toml:2 files.texts] exp"));
  for (const char* none : {"", "a/b", static_cast<const char*>(nullptr)}) {
    const HomeGuard home(none);
    EXPECT_EQ(set_error("files.file=~/x"),
              "[--set files.file] expected ~ to be the folder in HOME, but that names none; write "
              "the folder in full");
  }
}

TEST(Fields, OverrideWithTomlValuesAndBareWords) {
  EXPECT_EQ(overridden("run.steps=5").steps, 5);
  EXPECT_EQ(overridden(" run.rate = 2.5e-1 ").rate, 0.25);
  EXPECT_TRUE(overridden("run.loud=true").loud);
  EXPECT_EQ(overridden("files.colour=green").colour, Colour::green);
  EXPECT_EQ(overridden("files.colour=\"green\"").colour, Colour::green);
  EXPECT_EQ(overridden("run.pair=[0.1,0.2]").pair[0], 0.1);
  EXPECT_THAT(overridden("files.tags=[\"a\",\"b\"]").tags, ElementsAre("a", "b"));
  EXPECT_THAT(overridden("files.texts=a.txt").texts, ElementsAre("a.txt"));
  EXPECT_EQ(overridden("run.title=").title, "");
  EXPECT_EQ(overridden("run.title=a=b").title, "a=b");
}

TEST(Fields, OverrideTextThatLooksLikeANumber) {
  EXPECT_EQ(overridden("run.title=7").title, "7");
  EXPECT_EQ(overridden("files.file=1e3").file, "1e3");
}

TEST(Fields, OverridesCannotSmuggleInOtherKeys) {
  EXPECT_EQ(overridden("run.title=\"a\"\nrun.steps=3").title, "\"a\"\nrun.steps=3");
}

TEST(Fields, NameLineAndKeyOfAWrongValue) {
  EXPECT_EQ(toml_error("[run]\n\nsteps = 0"),
            "[run.toml:3 run.steps] expected a whole number >= 1, got 0; write e.g. steps = 100");
  EXPECT_EQ(
      toml_error("[run]\nsteps = \"ten\""),
      "[run.toml:2 run.steps] expected a whole number >= 1, got \"ten\"; write e.g. steps = 100");
  EXPECT_EQ(toml_error("[run]\nsteps = 1.5"),
            "[run.toml:2 run.steps] expected a whole number >= 1, got 1.5; write e.g. steps = 100");
  EXPECT_EQ(toml_error("[run]\nloud = 1"),
            "[run.toml:2 run.loud] expected true or false, got 1; write e.g. loud = false");
  EXPECT_EQ(
      toml_error("[files]\nfile = 3"),
      "[run.toml:2 files.file] expected a path in quotes, got 3; write e.g. file = \"a/path\"");
}

TEST(Fields, RejectNumbersOutOfRange) {
  EXPECT_THAT(toml_error("[run]\nrate = 1.01"), HasSubstr("a number >= 0 and <= 1, got 1.01"));
  EXPECT_THAT(toml_error("[run]\nrate = nan"), HasSubstr("got nan"));
  EXPECT_THAT(toml_error("[run]\nrate = inf"), HasSubstr("got inf"));
  EXPECT_THAT(toml_error("[run]\npair = [0.5, 1.0]"), HasSubstr("each >= 0 and < 1, got a list"));
  EXPECT_THAT(toml_error("[run]\npair = [0.5]"), HasSubstr("a list of two numbers"));
}

TEST(Fields, QuoteNumbersAsTheyAreWritten) {
  for (const char* number : {"2.0", "1e5", "1E+2", "-0.0", "+3", "0x10", "1_000.5", "-inf"}) {
    const auto got = HasSubstr(fmt::format("got {};", number));
    EXPECT_THAT(toml_error(fmt::format("[run]\nloud = {} # 1.5", number)), got);
    EXPECT_THAT(toml_error(fmt::format("run = {{ title = 'é', loud = {} }}", number)), got);
    EXPECT_THAT(set_error(fmt::format("run.loud= {} ", number)), got);
    EXPECT_THAT(toml_error(fmt::format("[files]\ntags = [\"é\", {}]", number)),
                HasSubstr(fmt::format("a list that holds {};", number)));
  }
  EXPECT_THAT(toml_error("[run]\nsteps = 2.0"), HasSubstr("got 2.0;"));
  EXPECT_THAT(toml_error("\xEF\xBB\xBFrun.steps = 2.0"), HasSubstr("got 2.0;"));
  EXPECT_THAT(toml_error("[run]\r\nrate = 1e5\r\n"), HasSubstr("got 1e5;"));
  EXPECT_THAT(toml_error("[run]\npair = [0.5, 1.00]"), HasSubstr("a list with 1.00;"));
  EXPECT_THAT(toml_error("run = 3.0"), HasSubstr("got 3.0;"));
}

TEST(Fields, RememberHowValuesWereWritten) {
  Settings settings;
  Origins origins;
  parse_fields("[run]\nrate = 1e-1 # half\n", "run.toml", fields(settings), origins);
  EXPECT_EQ(written(origins, "run.rate", 0.1), "1e-1");
  apply_override("run.rate=0.50", fields(settings), origins);
  EXPECT_EQ(written(origins, "run.rate", 0.5), "0.50");
  EXPECT_EQ(written(origins, "run.absent", 0.25), "0.25");
}

TEST(Fields, ListTheChoicesAndSuggestOne) {
  EXPECT_EQ(
      toml_error("[files]\ncolour = \"gren\""),
      "[run.toml:2 files.colour] expected one of \"red\", \"green\", got \"gren\"; did you mean "
      "\"green\"?");
  EXPECT_THAT(toml_error("[files]\ncolour = \"violet\""), HasSubstr("write e.g. colour = \"red\""));
}

TEST(Fields, SuggestTheNearestKeyAndSection) {
  EXPECT_EQ(toml_error("[run]\nstep = 3"),
            "[run.toml:2] expected a key of [run], got \"step\"; did you mean \"steps\"?");
  EXPECT_EQ(toml_error("[rum]\nsteps = 3"),
            "[run.toml:1] expected a section, got \"rum\"; did you mean \"run\"?");
  EXPECT_EQ(toml_error("[elsewhere]"),
            "[run.toml:1] expected a section, got \"elsewhere\"; there are: run, files");
  EXPECT_THAT(toml_error("run = 3"), HasSubstr("expected a section, got 3; write [run]"));
}

TEST(Fields, ReportTheTopmostError) {
  EXPECT_THAT(toml_error("[run]\nzzz = 1\nloud = 3"), HasSubstr("run.toml:2"));
  EXPECT_THAT(toml_error("[files]\nfile = 1\n[run]\nloud = 3"), HasSubstr("run.toml:2"));
}

TEST(Fields, ReportSyntaxErrorsAndDuplicatesWithTheirLine) {
  EXPECT_THAT(toml_error("[run]\nsteps = = 3"), HasSubstr("[run.toml:2 steps] expected TOML"));
  EXPECT_THAT(toml_error("[run]\nsteps = 3\nsteps = 4"),
              HasSubstr("[run.toml:3 steps] expected TOML"));
  EXPECT_THAT(toml_error("a = \"\xff\""), HasSubstr("UTF-8"));
}

TEST(Fields, SayWhatALineThatIsNoTomlWants) {
  const std::string text = "expected a number, true, false or text in quotes, got ";
  const std::pair<const char*, std::string> cases[] = {
      {"colour = green", text + "green; put text in quotes: colour = \"green\""},
      {"colour = green # or red", text + "green; put text in quotes: colour = \"green\""},
      {"colour = “green”", text + "“green”; put text in quotes: colour = \"green\""},
      {"colour = fawn", text + "fawn; put text in quotes: colour = \"fawn\""},
      {"colour = ivory", text + "ivory; put text in quotes: colour = \"ivory\""},
      {"file = C:\\data", text + "C:\\data; put text in quotes: file = 'C:\\data'"},
      {"texts = [a/b.txt]", text + "a/b.txt; put text in quotes: \"a/b.txt\""},
      {"texts = ['it', ./b.txt]", text + "./b.txt; put text in quotes: \"./b.txt\""},
      {"title = C# [a] # b", text + "C# [a]; put text in quotes: title = \"C# [a]\""},
      {"title = it's", text + "it's; put text in quotes: title = \"it's\""},
      {"title = a\\b's", text + "a\\b's; put text in quotes"},
      {"title = say \"hi\"", text + "say \"hi\"; put text in quotes"},
      {"texts = a.txt, b.txt", text + "a.txt, b.txt; put text in quotes"},
      {"colour = green; or red", text + "green; or red; put text in quotes"},
      {"colour = green // or red", text + "green // or red; put text in quotes"},
      {"loud = no", text + "no; write true or false, or put text in quotes"},
      {"loud = Yes # x", text + "Yes; write true or false, or put text in quotes"},
      {"loud = tru", text + "tru; write true or false, or put text in quotes"},
      {"loud = True", "expected true or false, got True; write true"},
      {"loud = FALSE", "expected true or false, got FALSE; write false"},
      {"file = \"a", "expected text in quotes, got \"a; close the quote"},
      {"file = 'a # b", "expected text in quotes, got 'a # b; close the quote"},
      {"texts = [\"a\", \"b]", "expected text in quotes, got \"b]; close the quote"},
      {"file = \"C:\\data\"",
       "expected no \\ in double quotes, got \"C:\\data\"; use / or single quotes"},
      {"file = \"C:\\Users\"",
       "expected no \\ in double quotes, got \"C:\\Users\"; use / or single quotes"},
      {"steps = 18446744073709551615",
       "expected a whole number <= 9223372036854775807, got 18446744073709551615; write one within "
       "it"},
      {"pair = [99999999999999999999, 1]",
       "expected a number of at most 64 bits, got [99999999999999999999, 1]; write a smaller one"},
      {"steps = 99999999999999999999 # x",
       "expected a number of at most 64 bits, got 99999999999999999999 # x; write a smaller one"},
      {"steps = -9223372036854775809",
       "expected a whole number >= -9223372036854775808, got -9223372036854775809; write one "
       "within it"},
  };
  for (const auto& [line, advice] : cases) {
    const std::string key(line, std::string_view(line).find(' '));
    EXPECT_EQ(toml_error(fmt::format("[run]\n{}\n[files]\n", line)),
              fmt::format("[run.toml:2 {}] {}", key, advice));
  }
  EXPECT_EQ(toml_error("[files]\ntexts = [\n  \"a\",\n  b.txt,\n]"),
            "[run.toml:4] " + text + "b.txt; put text in quotes: \"b.txt\"");
}

TEST(Fields, BlameAnOpenListForTheLineThatFollows) {
  for (const char* list : {"[", "[\"a.txt\"", "[\"a.txt\",", "[\"a.txt\", # é"}) {
    for (const char* line : {"steps = 5", "title=\"x\"", "file = 'x'", "[run]", "[files] # x"}) {
      EXPECT_EQ(
          toml_error(fmt::format("[files]\ntexts = {}\n  {}\n", list, line)),
          fmt::format("[run.toml:3] expected an entry of a list, got {}; close the list above "
                      "with ], or put text in quotes",
                      line));
    }
  }
}

TEST(Fields, BlameNoKeyForWhatIsOpenAtTheEnd) {
  for (const char* open : {"title = \"\"\"a", "title = '''a", "texts = [\"a\","}) {
    const std::string error = toml_error(fmt::format("{}\n\"steps = 5\"", open));
    EXPECT_THAT(error, ::testing::StartsWith("[run.toml:2] expected TOML")) << open;
    EXPECT_THAT(error, HasSubstr("; close what is open, a quote or a list")) << open;
  }
  EXPECT_THAT(toml_error("title = \"\"\"a\nsteps = 5"), HasSubstr("[run.toml:2] expected TOML"));
  EXPECT_THAT(toml_error("steps ="), HasSubstr("[run.toml:1 steps]"));
}

TEST(Fields, ShowNoExampleThatIsCut) {
  EXPECT_THAT(toml_error("title = " + std::string(61, 'a')), HasSubstr("…; put text in quotes"));
  EXPECT_THAT(toml_error("title = " + std::string(61, 'a')), Not(HasSubstr("quotes:")));
}

TEST(Fields, AnswerLongLinesInShort) {
  std::string quotes;
  for (int i = 0; i < 100000; ++i) quotes += "“";
  const std::string line(500000, 'a');
  for (const std::string& text :
       {"colour = " + quotes, "colour = " + line, line + " = green", "colour = '" + line,
        "colour = \"\\d" + line, "texts = [" + line, "steps = 9" + std::string(500000, '9')}) {
    EXPECT_LT(toml_error("[run]\n" + text).size(), 500U) << text.substr(0, 20);
  }
}

TEST(Fields, LeaveOtherSyntaxErrorsToTheParser) {
  for (const char* line : {"steps = .5", "steps = 1,000", "steps = 10k", "steps = 010",
                           "steps =", "texts = ['a' 'b']", "texts = [, a]", "steps = +"}) {
    EXPECT_THAT(toml_error(fmt::format("[run]\n{}\n", line)),
                HasSubstr("expected TOML: Error while"))
        << line;
  }
}

TEST(Fields, OverridesTakeTextAsItStands) {
  for (const char* text : {"[INST] hi", "[1].jsonl", "'tis the season", "\"Hello,\" she said", "\"",
                           "'", "[", "[a.txt]", "\"a", "a\"", "\"a'"}) {
    EXPECT_EQ(overridden(fmt::format("run.title={}", text)).title, text);
    EXPECT_EQ(overridden(fmt::format("files.file={}", text)).file, text);
  }
  EXPECT_EQ(overridden("run.title=\"a\"").title, "a");
}

TEST(Fields, OverridesThatWereMeantAsTomlSayWhatTheyWant) {
  EXPECT_EQ(set_error("files.texts=[a.txt]"),
            "[--set files.texts] expected a number, true, false or text in quotes, got a.txt; put "
            "text in quotes: \"a.txt\"");
  EXPECT_EQ(set_error("files.colour=\"green"),
            "[--set files.colour] expected text in quotes, got \"green; close the quote");
  EXPECT_EQ(set_error("files.file=\"C:\\data\""),
            "[--set files.file] expected no \\ in double quotes, got \"C:\\data\"; use / or single "
            "quotes");
  EXPECT_EQ(set_error("run.steps=18446744073709551615"),
            "[--set run.steps] expected a whole number <= 9223372036854775807, got "
            "18446744073709551615; write one within it");
  EXPECT_EQ(set_error("run.loud=True"),
            "[--set run.loud] expected true or false, got \"True\"; did you mean true?");
  EXPECT_EQ(set_error("run.loud=TRUE"),
            "[--set run.loud] expected true or false, got \"TRUE\"; did you mean true?");
  EXPECT_THAT(set_error("run.pair=[0.5, x]"), HasSubstr("a list of two numbers"));
}

TEST(Fields, RejectTextWithAZeroByte) {
  EXPECT_THAT(toml_error("[run]\ntitle = \"a\\u0000b\""), HasSubstr("zero byte"));
}

TEST(Fields, RejectHugeFiles) {
  EXPECT_THAT(toml_error(std::string(2U << 20U, '#')), HasSubstr("at most 1048576 bytes"));
}

TEST(Fields, OverrideErrorsNameTheOption) {
  EXPECT_EQ(set_error("run.steps=1O"),
            "[--set run.steps] expected a whole number >= 1, got \"1O\"; write e.g. steps = 100");
  EXPECT_EQ(set_error("run.stepz=1"),
            "[--set] expected a key of [run], got \"stepz\"; did you mean \"steps\"?");
  EXPECT_THAT(set_error("steps=1"), HasSubstr("expected section.key=value, got \"steps=1\""));
  EXPECT_THAT(set_error("run.steps"), HasSubstr("expected section.key=value"));
}

TEST(Fields, RememberWhereValuesCameFrom) {
  Settings settings;
  Origins origins;
  parse_fields("[run]\nsteps = 3\nrate = 0.1", "run.toml", fields(settings), origins);
  apply_override("run.rate=0.2", fields(settings), origins);
  EXPECT_EQ(where(origins, "run.toml", "run.steps"), "run.toml:2 run.steps");
  EXPECT_EQ(where(origins, "run.toml", "run.rate"), "--set run.rate");
  EXPECT_EQ(where(origins, "run.toml", "run.title"), "run.toml run.title");
}

TEST(Fields, DescribeKeysDefaultsAndRanges) {
  Settings settings;
  const std::string page = fields_to_markdown(fields(settings));
  EXPECT_THAT(page, HasSubstr("## [run]\n\nHow long.\n"));
  EXPECT_THAT(page, HasSubstr("| `steps` | a whole number >= 1 | `100` | how many |"));
  EXPECT_THAT(page, HasSubstr("| `colour` | one of \"red\", \"green\" | `\"red\"` | a colour |"));
}

// Any bytes give settings or one input error, never another exception or a crash.
TEST(Fields, SurviveMutatedFiles) {
  const std::string valid =
      "[run]\nloud = true\nsteps = 7\nrate = 0.5\npair = [0, 0.5]\ntitle = 'x'\n"
      "[files]\ntexts = [\"/a\", \"/b\"]\ncolour = \"green\"\nmodel = \"\"\"m\"\"\"\n";
  const std::string alphabet = "[]{}=\"'\\\n.,#-+_0129aeinfT:\xff\xc3";
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed, "mutate");
    std::string text = valid;
    for (std::uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const std::size_t at = rng.below(text.size());
      if (rng.below(3) == 0) {
        text.erase(at, 1 + rng.below(5));
      } else {
        text.insert(at, 1, alphabet[rng.below(alphabet.size())]);
      }
    }
    try {
      const Settings s = parsed(text);
      EXPECT_GE(s.steps, 1) << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << text;
    }
  }
}

std::string deep_key(std::size_t depth) {
  std::string key = "a";
  for (std::size_t i = 1; i < depth; ++i) key += ".a";
  return key;
}

TEST(Fields, RejectDeepKeys) {
  for (const char* form : {"[run]\n{} = 1", "[{}]"}) {
    EXPECT_THAT(toml_error(fmt::format(fmt::runtime(form), deep_key(200000))),
                HasSubstr("write [sections]"));
    EXPECT_THAT(toml_error(fmt::format(fmt::runtime(form), deep_key(900))),
                HasSubstr("expected a"));
  }
  EXPECT_THAT(set_error(fmt::format("run.steps={{{} = 1}}", deep_key(50000))),
              HasSubstr("a whole number"));
}

TEST(Fields, RejectDeepNesting) {
  EXPECT_NE(toml_error("[run]\nsteps = " + std::string(100000, '[')), "no error");
}

}  // namespace
}  // namespace moestro
