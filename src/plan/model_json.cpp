#include <fmt/format.h>

#include <cmath>

#include "lockstep/plan/fit.h"
#include "plan/json_node.h"

namespace lockstep::plan {

namespace {

Json regime_json(const Regime& regime) {
  return {{"up_to_bytes", regime.up_to_bytes},
          {"latency_s", regime.network.between.latency_s},
          {"s_per_byte", regime.network.between.s_per_byte},
          {"reduce_s_per_byte", regime.network.reduce_s_per_byte}};
}

/// A number of a regime, finite and not negative.
double number(const Json& regime, const char* key, const std::string& path) {
  const auto found = regime.find(key);
  const bool is_number = found != regime.end() && found->is_number();
  if (is_number && found->get<double>() >= 0 && std::isfinite(found->get<double>())) return *found;
  throw UsageError(fmt::format("model json {}/{}: {}; hint: a number, not negative", path, key,
                               found == regime.end() ? "is missing" : shown(found->dump())));
}

Regime read_regime(const Json& json, const std::string& path) {
  if (!json.is_object()) throw UsageError(fmt::format("model json {}: is no object", path));
  return {.up_to_bytes = number(json, "up_to_bytes", path),
          .network = {.between = {.latency_s = number(json, "latency_s", path),
                                  .s_per_byte = number(json, "s_per_byte", path)},
                      .reduce_s_per_byte = number(json, "reduce_s_per_byte", path)}};
}

}  // namespace

std::string to_json(const Model& model) {
  Json document = Json::object();
  for (const auto& [form, regimes] : model.forms) {
    for (const auto& regime : regimes) document[form].push_back(regime_json(regime));
  }
  return document.dump();
}

Model model_from_json(std::string_view text) {
  const Json document = parse_json("model json", text);
  if (!document.is_object()) throw UsageError("model json /: is no object");
  Model model;
  for (const auto& [form, regimes] : document.items()) {
    const std::string path = fmt::format("/{}", shown(form));
    if (!regimes.is_array() || regimes.empty())
      throw UsageError(fmt::format("model json {}: no list of regimes", path));
    for (size_t i = 0; i < regimes.size(); ++i)
      model.forms[form].push_back(read_regime(regimes[i], fmt::format("{}/{}", path, i)));
  }
  return model;
}

}  // namespace lockstep::plan
