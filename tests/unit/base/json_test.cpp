#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tandem/base/json.h"
#include "tandem/base/json_writer.h"

using namespace tandem;
using Catch::Contains;

namespace {

std::string parse_failure(std::string_view text, const JsonLimits& limits = {}) {
  try {
    static_cast<void>(parse_json(text, "a.json", ExitCode::kUsage, limits));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("JSON values keep their type, order and exact numbers") {
  const Json json = parse_json(
      R"({"b": true, "a": [1, -2, 2.5, 18446744073709551615, null, "x\u00e9\n"], "c": {}})", "t");
  CHECK(json.as_object("t")[0].first == "b");
  CHECK(json.at("b", "t").as_bool("b"));
  const Json::Array& a = json.at("a", "t").as_array("a");
  CHECK(a[0].as_int("a") == 1);
  CHECK(a[1].as_int("a") == -2);
  CHECK(a[2].as_double("a") == 2.5);
  CHECK(a[3].as_uint("a") == std::numeric_limits<std::uint64_t>::max());
  CHECK(a[4].is_null());
  CHECK(a[5].as_string("a") == "x\xC3\xA9\n");
  CHECK(json.find("d") == nullptr);
  CHECK(json.at("c", "t").is_object());
  CHECK(json.dump() ==
        "{\"b\":true,\"a\":[1,-2,2.5,18446744073709551615,null,\"x\xC3\xA9\\n\"],\"c\":{}}");
}

TEST_CASE("the parser refuses what is ambiguous or hostile, and names the place") {
  CHECK_THAT(parse_failure("{\"a\": 1,\n  \"a\": 2}"),
             Contains("a.json: line 2, column 5") && Contains("\"a\" appears twice"));
  CHECK_THAT(parse_failure("[1, 2"), Contains("line 1") && !Contains("comments"));
  for (const char* text : {"// c\n1", "[1, /* c */ 2]", "{\"a\": 1 # c\n}"})
    CHECK_THAT(parse_failure(text), Contains("JSON has no comments"));
  for (const char* text : {"True", "[False]", "{\"a\": None}", "[NULL, 1]"})
    CHECK_THAT(parse_failure(text), Contains("true, false and null in small letters"));
  for (const char* text : {"NaN", "{\"a\": nan}", "[Infinity]", "[-Infinity]", "[1, -inf]"})
    CHECK_THAT(parse_failure(text), Contains("JSON has no NaN and no Infinity"));
  for (const char* text : {"FP16", "{\"a\": Node}", "[Nano]", "[\"NaN\n\"]"})
    CHECK_THAT(parse_failure(text), !Contains("small letters") && !Contains("JSON has no"));
  CHECK_THAT(parse_failure("[1,\n2,\n}"), Contains("line 3, column 1"));
  for (const char* text :
       {"", " ", "[1] 2", "{\"a\" 1}", "[1,]", "NaN", "Infinity", "'a'", "// c\n1", "1e400",
        "-1e400", "01", "\"\xff\"", "\"\\ud800\"", "\"a\nb\"", "tru"}) {
    INFO(text);
    CHECK(parse_failure(text) != "accepted");
  }
}

TEST_CASE("equal keys are fine in different objects") {
  CHECK(parse_json(R"([{"a":1},{"a":{"a":2}}])", "t").as_array("t").size() == 2);
}

TEST_CASE("depth and size are capped") {
  const std::string deep(200000, '[');
  CHECK_THAT(parse_failure(deep), Contains("deeper than 64"));
  const std::string allowed = std::string(64, '[') + std::string(64, ']');
  CHECK(parse_failure(allowed) == "accepted");
  CHECK_THAT(parse_failure("[" + allowed + "]"), Contains("deeper than 64"));
  CHECK_THAT(parse_failure("[1,2,3]", {.depth = 4, .bytes = 6}), Contains("7 bytes"));
  CHECK(parse_failure("[1,2,3]", {.depth = 1, .bytes = 7}) == "accepted");
}

TEST_CASE("getters never convert") {
  const auto value = [](const char* text) { return parse_json(text, "t"); };
  CHECK_THROWS_WITH(value("3.0").as_int("m: step"),
                    "m: step: expected an integer, got the number 3, written with a fraction or an "
                    "exponent; write 3");
  CHECK_THROWS_WITH(value("-2e3").as_uint("n"), Contains("write -2000"));
  CHECK_THROWS_WITH(value("1.5").as_int("n"), "n: expected an integer, got the number 1.5");
  CHECK_THROWS_WITH(value("1e30").as_int("n"),
                    "n: expected an integer, got 1e+30, which 64 bits do not hold");
  CHECK_THROWS_WITH(value("1099511627776").as_int("n", 0, 2147483647),
                    "n: 1099511627776 is outside 0 .. 2147483647");
  CHECK_THROWS_WITH(value("18446744073709551615").as_int("n"), Contains("is outside"));
  CHECK_THROWS_WITH(value("-1").as_uint("n"), Contains("negative"));
  CHECK_THROWS_WITH(value("36893488147419103232").as_uint("n"), Contains("expected an integer"));
  CHECK_THROWS_WITH(value("\"1\"").as_int("n"), Contains("got the string \"1\""));
  CHECK_THROWS_WITH(value("1").as_bool("n"), Contains("expected true or false"));
  CHECK_THROWS_WITH(value("null").as_double("n"), Contains("got null"));
  CHECK_THROWS_WITH(value("[]").as_string("n"), Contains("got an array"));
  CHECK_THROWS_WITH(value("{}").as_array("n"), Contains("got an object"));
  CHECK_THROWS_WITH(value("{}").at("k", "m"), "m: the key \"k\" is missing");
  CHECK_THROWS_WITH(value("[]").at("k", "m"), Contains("expected an object"));
  CHECK(value("3").as_double("n") == 3.0);
  CHECK(value("-9223372036854775808").as_int("n") == std::numeric_limits<std::int64_t>::min());
  CHECK(Json(std::uint64_t{5}) == value("5"));
}

TEST_CASE("the writer escapes, indents and turns non-finite numbers into null") {
  JsonWriter w(2);
  w.begin_object().key("a\"\\\x01").value(std::string("l\n\t\xC3\xA9\xff"));
  w.key("n").begin_array(true).value(1).value(-2.5).value(std::nan("")).value(HUGE_VAL).end_array();
  w.key("e").begin_array().end_array().key("b").begin_array().value(true).end_array().end_object();
  CHECK(w.str() ==
        "{\n  \"a\\\"\\\\\\u0001\": \"l\\n\\t\xC3\xA9\xEF\xBF\xBD\",\n  \"n\": [1, -2.5, null, "
        "null],\n"
        "  \"e\": [],\n  \"b\": [\n    true\n  ]\n}");
  CHECK_NOTHROW(parse_json(w.str(), "t"));
}

TEST_CASE("an unfinished text is not handed out") {
  JsonWriter w;
  w.begin_object();
  CHECK_THROWS_AS(w.str(), Error);
  w.key("a");
  CHECK_THROWS_AS(w.str(), Error);
  w.null().end_object();
  CHECK(w.str() == "{\"a\":null}");
  CHECK_THROWS_AS(w.end_object(), Error);
}

TEST_CASE("doubles read back equal") {
  for (const double v :
       {0.1, 1.0 / 3, 1e-308, 5e-324, 1.7976931348623157e308, -0.0, 1e21, 123456789.0}) {
    JsonWriter w;
    w.value(v);
    const double back = parse_json(w.str(), "t").as_double("t");
    CHECK(back == v);
  }
}

TEST_CASE("binary data is called so, with the place") {
  using namespace std::string_view_literals;
  CHECK_THAT(parse_failure("{\"a\": 1}\0"sv),
             Contains("a.json: byte 8 is NUL: this is binary data"));
  CHECK_THAT(parse_failure("\0\0\0"sv), Contains("byte 0 is NUL"));
}

TEST_CASE("an excerpt is short, whole characters, and harmless in a terminal") {
  CHECK(excerpt("abc") == "abc");
  CHECK(excerpt(std::string(60, 'a')) == std::string(60, 'a'));
  CHECK(excerpt(std::string(61, 'a')) == std::string(60, 'a') + "...");
  CHECK(excerpt("\x1b[31m\x7f") == "\\u001b[31m\\u007f");
  std::string euros;
  for (int i = 0; i < 61; ++i) euros += "\xE2\x82\xAC";
  CHECK(excerpt(euros) == euros.substr(0, 180) + "...");
  CHECK(excerpt("\xff") == "\xEF\xBF\xBD");
}

TEST_CASE("any bytes become a valid JSON string") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (const std::string& text : {bytes, std::string("\xC0\x80"), std::string("\xED\xA0\x80"),
                                  std::string("\xF4\x90\x80\x80"), std::string("\xE2\x82")})
    CHECK_NOTHROW(parse_json(json_quote(text), "t"));
  CHECK(parse_json(json_quote("\xF0\x9F\x98\x80 \xE2\x82\xAC"), "t").as_string("t") ==
        "\xF0\x9F\x98\x80 \xE2\x82\xAC");
}
