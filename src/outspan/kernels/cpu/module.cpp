// The executor: walks a plan row by row, several threads claiming rows, which meet only where rows mix.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pool.h"
#include "rows.h"

namespace nb = nanobind;

namespace outspan {
namespace {

const char *const NAMES[] = {
    "identity",    "auto_contrast", "equalize",        "invert",        "brightness",  "color",  "contrast",    "sharpness",
    "posterize",   "solarize",      "rotate",          "shear_x",       "shear_y",     "translate_x", "translate_y", "cutout",
    "mixup",       "cutmix",        "horizontal_flip", "vertical_flip", "blur",        "smooth", "random_crop", "resized_crop",
};

const Kernels *available(const std::string &name) {
    if (name == "baseline") return &baseline::kernels;
#ifdef OUTSPAN_X86
    __builtin_cpu_init();
    if (name == "avx2" && __builtin_cpu_supports("avx2")) return &avx2::kernels;
    if (name == "avx512" && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi"))
        return &avx512::kernels;
#endif
    return nullptr;
}

const Kernels *best() {
    for (const char *name : {"avx512", "avx2"})
        if (const Kernels *kernels = available(name)) return kernels;
    return &baseline::kernels;
}

const Kernels *chosen = best();

// Uninitialised bytes; a vector would write them all first.
using Bytes = std::unique_ptr<uint8_t[]>;
Bytes allocate(int64_t count) { return Bytes(new uint8_t[size_t(std::max<int64_t>(count, 1))]); }

// What a plan's names mean: for each the kernel's op, the magnitude rest + span * level, and the levels allowed.
struct Meaning {
    std::vector<Op> ops;
    std::vector<double> rest, span;
    std::vector<float> low, high;
};

Meaning mean(const std::vector<std::string> &names, std::vector<double> rest, std::vector<double> span,
             std::vector<float> low, std::vector<float> high) {
    std::vector<Op> ops;
    for (const std::string &name : names)
        ops.push_back(Op(std::find(std::begin(NAMES), std::end(NAMES), name) - std::begin(NAMES)));
    return {ops, rest, span, low, high};
}

struct Plan {
    int64_t rows, steps, images, outputs;
    const int16_t *ops;
    const float *levels, *places;
    const int64_t *partners, *source, *out;
    const Meaning &meaning;

    // Whether step t of the row does something: level 0 of a graded transform is the identity.
    bool acts(int64_t row, int64_t t) const {
        const int16_t op = ops[row * steps + t];
        return op >= 0 && meaning.ops[size_t(op)] != Op::identity &&
               (meaning.span[size_t(op)] == 0 || levels[row * steps + t] != 0);
    }
    bool mixes(int64_t row, int64_t t) const {
        if (!acts(row, t)) return false;
        const Op op = meaning.ops[size_t(ops[row * steps + t])];
        return op == Op::mixup || op == Op::cutmix;
    }
    // Whether every number may be used as it stands: no read outside, no level beyond its limit, no NaN.
    bool valid() const {
        auto within = [](int64_t value, int64_t low, int64_t high) { return low <= value && value < high; };
        for (int64_t row = 0; row < rows; ++row) {
            if (!within(source[row], 0, images)) return false;
            for (int64_t at = row * steps; at < (row + 1) * steps; ++at) {
                const int64_t op = ops[at];
                if (!within(op, -1, int64_t(meaning.ops.size()))) return false;
                if (op >= 0 && !(meaning.low[size_t(op)] <= levels[at] && levels[at] <= meaning.high[size_t(op)]))
                    return false;
                for (int64_t i = 4 * at; i < 4 * at + 4; ++i)
                    if (!(places[i] >= 0 && places[i] <= 1)) return false;
                if (mixes(row, at - row * steps) && !within(partners[at], 0, rows)) return false;
            }
        }
        return std::all_of(out, out + outputs, [&](int64_t row) { return within(row, 0, rows); });
    }
};

// Executes one plan. A row runs to its next stop, a step at which it mixes or is mixed in after having changed,
// and is parked there. Its places alternate between `beside` and its own place in the output so that nothing is
// overwritten while another row may still read it, and so that it ends in the output.
class Execution {
  public:
    Execution(const Plan &plan, const Shape &shape, const uint8_t *images, uint8_t *out, const uint8_t *fill,
              const Normalize &normalize, int threads)
        : plan_(plan), shape_(shape), images_(images), out_(out), fill_(fill), normalize_(normalize),
          out_bytes_(shape.bytes() * std::max(1, normalize.size)), slot_(size_t(plan.rows), -1) {
        // Waking a thread costs some ten microseconds: not worth it below that much work.
        const int64_t work = plan.outputs * shape.bytes() * std::max<int64_t>(plan.steps, 1);
        threads_ = int(std::clamp<int64_t>(work >> 17, 1, std::max(threads, 1)));
        for (int64_t i = 0; i < plan.outputs; ++i) {
            int64_t &slot = slot_[size_t(plan.out[i])];
            if (slot < 0) slot = i;
            else copies_.push_back({slot, i});
        }
    }

    void run() {
        find_stops();
        const int64_t scratch = 3 * (shape_.bytes() + 64) + shape_.bytes();
        Bytes memory = allocate(threads_ * scratch);
        std::vector<std::vector<Step>> steps(size_t(threads_), std::vector<Step>(size_t(plan_.steps)));
        const int64_t chunk = std::max<int64_t>(1, (64 << 10) / shape_.bytes());
        std::vector<std::atomic<int64_t>> claimed(phases_.size()), done(phases_.size());
        std::atomic<size_t> current{0};
        // Threads claim a few rows at a time. Whoever ends the last row of a phase opens the next one.
        Pool::run(threads_, [&](int thread) {
            for (size_t phase = 0; phase < phases_.size(); ++phase) {
                while (current.load(std::memory_order_acquire) < phase) std::this_thread::yield();
                const std::vector<int64_t> &rows = phases_[phase];
                const int64_t count = int64_t(rows.size());
                for (int64_t start; (start = claimed[phase].fetch_add(chunk)) < count;) {
                    const int64_t stop = std::min(start + chunk, count);
                    for (int64_t i = start; i < stop; ++i)
                        advance(rows[size_t(i)], steps[size_t(thread)].data(), memory.get() + thread * scratch);
                    if (done[phase].fetch_add(stop - start) + stop - start < count) continue;
                    for (int64_t row : rows) state_[size_t(row)] = next_[size_t(row)];
                    current.store(phase + 1, std::memory_order_release);
                }
            }
        });
        for (const auto &[from, to] : copies_)
            std::copy_n(out_ + from * out_bytes_, out_bytes_, out_ + to * out_bytes_);
    }

  private:
    struct State {
        const uint8_t *pixels;
        int64_t step;   // done up to here
        int64_t stops;  // still to come
    };

    const uint8_t *source(int64_t row) const { return images_ + plan_.source[row] * shape_.bytes(); }
    bool stops_at(int64_t row, int64_t t) const { return !stops_.empty() && stops_[size_t(row * plan_.steps + t)]; }

    // Goes through the steps backwards: a row is needed up to `need`, hence its partner at t up to t.
    void find_stops() {
        const int64_t rows = plan_.rows, steps = plan_.steps;
        std::vector<int64_t> need(static_cast<size_t>(rows)), first(static_cast<size_t>(rows), steps);
        std::vector<bool> meets(static_cast<size_t>(steps), false);
        bool mixing = false;
        for (int64_t row = 0; row < rows; ++row) {
            need[size_t(row)] = slot_[size_t(row)] >= 0 ? steps : 0;
            for (int64_t t = steps - 1; t >= 0; --t) {
                if (plan_.acts(row, t)) first[size_t(row)] = t;
                mixing |= plan_.mixes(row, t);
            }
        }
        if (mixing) {
            stops_.assign(size_t(rows * steps), 0);
            for (int64_t t = steps - 1; t > 0; --t)
                for (int64_t row = 0; row < rows; ++row) {
                    if (need[size_t(row)] <= t || !plan_.mixes(row, t)) continue;
                    const int64_t partner = plan_.partners[row * steps + t];
                    if (first[size_t(partner)] >= t) continue;  // still as it came: nothing to wait for
                    need[size_t(partner)] = std::max(need[size_t(partner)], t);
                    stops_[size_t(row * steps + t)] = stops_[size_t(partner * steps + t)] = 1;
                    meets[size_t(t)] = true;
                }
        }
        state_.resize(size_t(rows));
        phases_.emplace_back();
        int64_t parked = 0;
        for (int64_t row = 0; row < rows; ++row) {
            State &state = state_[size_t(row)] = {source(row), 0, 0};
            for (int64_t t = 0; t < steps; ++t) state.stops += stops_at(row, t);
            if (state.stops || slot_[size_t(row)] >= 0) phases_[0].push_back(row);
            parked += (state.stops > 0) + (state.stops > 1 && slot_[size_t(row)] < 0);
        }
        for (int64_t t = 0; t < steps; ++t) {
            if (!meets[size_t(t)]) continue;
            std::vector<int64_t> &meeting = phases_.emplace_back();
            for (int64_t row = 0; row < rows; ++row)
                if (stops_at(row, t)) meeting.push_back(row);
        }
        next_ = state_;
        parking_ = allocate(parked * shape_.bytes());
        beside_.resize(size_t(rows)), home_.resize(size_t(rows));
        uint8_t *place = parking_.get();
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t stops = state_[size_t(row)].stops, slot = slot_[size_t(row)];
            home_[size_t(row)] = slot >= 0 ? out_ + slot * out_bytes_ : nullptr;
            if (stops) beside_[size_t(row)] = place, place += shape_.bytes();
            if (stops > 1 && slot < 0) home_[size_t(row)] = place, place += shape_.bytes();
        }
    }

    // Runs a row from where it stands to its next stop, or to its end.
    void advance(int64_t row, Step *steps, uint8_t *scratch) {
        State state = state_[size_t(row)];
        if (!state.stops && slot_[size_t(row)] < 0) return;  // a helper that nobody needs any further
        int count = 0;
        int64_t t = state.step;
        for (; t < plan_.steps; ++t) {
            if (t > state.step && stops_at(row, t)) break;
            if (!plan_.acts(row, t)) continue;
            const int64_t at = row * plan_.steps + t;
            const size_t op = size_t(plan_.ops[at]);
            const double magnitude = plan_.meaning.rest[op] + plan_.meaning.span[op] * double(plan_.levels[at]);
            steps[count++] = {plan_.meaning.ops[op], magnitude,
                              plan_.places + 4 * at, plan_.mixes(row, t) ? partner(plan_.partners[at], t) : nullptr};
        }
        uint8_t *home = home_[size_t(row)];
        if (t < plan_.steps) {
            uint8_t *to = state.stops % 2 ? beside_[size_t(row)] : home;
            chosen->run(state.pixels, to, steps, count, shape_, fill_, scratch);
            next_[size_t(row)] = {to, t, state.stops - 1};
        } else if (normalize_.size) {
            uint8_t *last = scratch + 3 * (shape_.bytes() + 64);
            if (count) chosen->run(state.pixels, last, steps, count, shape_, fill_, scratch);
            chosen->normalize(count ? last : state.pixels, home, normalize_, shape_);
        } else {
            chosen->run(state.pixels, home, steps, count, shape_, fill_, scratch);
        }
    }

    // The partner as it stands before step t: parked there, or as it came.
    const uint8_t *partner(int64_t row, int64_t t) const {
        return state_[size_t(row)].step == t && t > 0 ? state_[size_t(row)].pixels : source(row);
    }

    const Plan plan_;
    const Shape shape_;
    const uint8_t *images_;
    uint8_t *out_;
    const uint8_t *fill_;
    const Normalize normalize_;
    const int64_t out_bytes_;
    int threads_ = 1;
    std::vector<int64_t> slot_;                        // a row's first place in the output, or -1
    std::vector<std::pair<int64_t, int64_t>> copies_;  // further places of rows wanted more than once
    std::vector<uint8_t> stops_;                       // [rows, steps]; empty where nothing mixes
    std::vector<State> state_, next_;
    std::vector<std::vector<int64_t>> phases_;
    Bytes parking_;
    std::vector<uint8_t *> beside_, home_;
};

// Returns false, and does nothing, where the plan is not valid. Addresses come from torch's tensors: handing over
// arrays would cost more than a small batch takes.
bool apply(const Meaning &meaning, uintptr_t images, std::array<int64_t, 4> shape, uintptr_t out,
           std::array<uintptr_t, 6> columns, std::array<int64_t, 3> sizes, uintptr_t fill, uintptr_t table, int size,
           bool channels_last, int threads) {
    nb::gil_scoped_release release;
    auto at = [](uintptr_t address, auto type) { return reinterpret_cast<const decltype(type) *>(address); };
    const auto [rows, steps, outputs] = sizes;
    const Plan plan = {rows, steps, shape[0], outputs, at(columns[0], int16_t()), at(columns[1], float()),
                       at(columns[2], float()), at(columns[3], int64_t()), at(columns[4], int64_t()),
                       at(columns[5], int64_t()), meaning};
    if (!plan.valid()) return false;
    const Normalize normalize = {reinterpret_cast<const void *>(table), size, channels_last};
    const Shape image = {int(shape[1]), int(shape[2]), int(shape[3])};
    Execution(plan, image, at(images, uint8_t()), reinterpret_cast<uint8_t *>(out), at(fill, uint8_t()), normalize, threads)
        .run();
    return true;
}

}  // namespace
}  // namespace outspan

NB_MODULE(_cpu, module) {
    module.doc() = "Outspan's kernels for the CPU.";
    nb::list names;
    for (const char *name : outspan::NAMES) names.append(name);
    module.attr("NAMES") = nb::tuple(names);
    nb::class_<outspan::Meaning>(module, "Meaning");
    module.def("mean", &outspan::mean);
    module.def("apply", &outspan::apply);
    module.def("instruction_set", [] { return outspan::chosen->name; });
    module.def("use_instruction_set", [](const std::string &name) {
        const outspan::Kernels *kernels = outspan::available(name);
        if (!kernels) throw std::invalid_argument("this machine has no '" + name + "'");
        outspan::chosen = kernels;
    });
}
