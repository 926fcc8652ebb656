#include "faults.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>
#include <vector>

#include "acl/device.h"
#include "end.h"

namespace sim {
namespace {

struct Rule {
    std::string function;
    int nth;
    int status;
    std::string what;
};

struct Faults {
    std::mutex mutex;
    std::condition_variable cleared;
    uint64_t generation = 0;  // grows when the faults are cleared
    std::vector<Rule> rules;
    std::map<std::string, uint64_t> counts;
    std::atomic<bool> read{false};  // the environment's rules are in the table
};

Faults &faults() {
    static auto *one = new Faults;
    return *one;
}

// The rule that this call meets, taken out of the table; `nth` counts down at every call. What is
// tolerated inside of a function keeps no other rule from it.
bool take_rule(Faults &table, const std::string &function, Rule &met, int &tolerated) {
    bool found = false;
    for (auto rule = table.rules.begin(); rule != table.rules.end();) {
        const bool applies = rule->function == function || rule->function == "*";
        const bool ends = rule->what != "tolerated";
        if (applies && --rule->nth <= 0 && !(ends && found)) {
            if (ends) met = *rule;
            if (!ends) tolerated = rule->status;
            found = found || ends;
            rule = table.rules.erase(rule);
        } else {
            ++rule;
        }
    }
    return found;
}

int carry_out(const Rule &rule, Deferred &deferred) {
    const int status =
        fail(rule.status, "the simulator was told to fail here (%s)", rule.what.c_str());
    if (rule.what == "return") return status;
    if (rule.what == "sticky") {
        make_sticky(rule.status);
        return status;
    }
    if (rule.what == "hang") {
        stall(deferred.generation, -1);
        return status;
    }
    if (rule.what == "crash") {
        std::raise(SIGSEGV);
        std::abort();
    }
    this_thread().message.clear();
    deferred.status = rule.status;
    deferred.stall = rule.what == "stall";
    return 0;
}

}  // namespace

int apply_fault(const char *function, Deferred &deferred) {
    Faults &table = faults();
    if (!table.read.load()) read_faults();
    Rule rule;
    int tolerated = 0;
    bool found = false;
    {
        std::lock_guard<std::mutex> guard(table.mutex);
        ++table.counts[function];
        found = take_rule(table, function, rule, tolerated);
        deferred.generation = table.generation;
    }
    if (tolerated != 0) this_thread().last_error = tolerated;
    return found ? carry_out(rule, deferred) : 0;
}

bool set_fault(const std::string &function, int nth, int status, const std::string &what) {
    static const std::set<std::string> known = {"return", "hang",  "crash",    "at_sync",
                                                "sticky", "stall", "tolerated"};
    if (known.count(what) == 0 || nth < 1 || function.empty()) return false;
    Faults &table = faults();
    std::lock_guard<std::mutex> guard(table.mutex);
    table.rules.push_back({function, nth, status, what});
    return true;
}

void clear_faults() {
    Faults &table = faults();
    {
        std::lock_guard<std::mutex> guard(table.mutex);
        table.rules.clear();
        ++table.generation;
    }
    table.cleared.notify_all();
}

void read_faults() {
    faults().read = true;
    const char *value = std::getenv("NPUCALL_SIM_FAULTS");
    std::istringstream rules(value == nullptr ? "" : value);
    std::string rule;
    while (std::getline(rules, rule, ';')) {
        std::istringstream parts(rule);
        std::string function, nth, what, status;
        std::getline(parts, function, ':');
        std::getline(parts, nth, ':');
        std::getline(parts, what, ':');
        std::getline(parts, status, ':');
        if (!set_fault(function, std::atoi(nth.c_str()), std::atoi(status.c_str()), what)) {
            std::fprintf(stderr, "simulator: no rule in NPUCALL_SIM_FAULTS: %s\n", rule.c_str());
            std::abort();
        }
    }
}

bool stall(uint64_t generation, int64_t milliseconds) {
    Faults &table = faults();
    std::unique_lock<std::mutex> lock(table.mutex);
    const auto cleared = [&] { return table.generation != generation; };
    if (milliseconds < 0) {
        table.cleared.wait(lock, cleared);
        return true;
    }
    return table.cleared.wait_for(lock, std::chrono::milliseconds(milliseconds), cleared);
}

std::map<std::string, uint64_t> call_counts() {
    std::lock_guard<std::mutex> guard(faults().mutex);
    return faults().counts;
}

void clear_call_counts() {
    std::lock_guard<std::mutex> guard(faults().mutex);
    faults().counts.clear();
}

}  // namespace sim
