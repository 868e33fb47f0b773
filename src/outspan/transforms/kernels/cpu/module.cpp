// The executor: walks a plan row by row, several threads claiming rows, which meet only where rows mix.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
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

// Each thread keeps its few images of scratch: touched before, they are mapped and often still in cache. Large ones
// are given back. Null where there is no memory.
class Scratch {
  public:
    uint8_t *get(int64_t count) {
        if (size_ < count) {
            bytes_.reset(new (std::nothrow) uint8_t[size_t(count)]);
            size_ = bytes_ ? count : 0;
        }
        return bytes_.get();
    }
    void trim() {
        if (size_ > 4 << 20) bytes_.reset(), size_ = 0;
    }

  private:
    Bytes bytes_;
    int64_t size_ = 0;
};

thread_local Scratch scratch_of_this_thread;

// What a plan's names mean: for each the kernel's op, the magnitude rest + span * level, and the levels allowed.
struct Meaning {
    std::vector<Op> ops;
    std::vector<double> rest, span;
    std::vector<float> low, high;
};

Meaning mean(const std::vector<std::string> &names, std::vector<double> rest, std::vector<double> span,
             std::vector<float> low, std::vector<float> high) {
    std::vector<Op> ops;
    for (const std::string &name : names) {
        const auto found = std::find(std::begin(NAMES), std::end(NAMES), name);
        if (found == std::end(NAMES)) throw std::invalid_argument("the kernel has no '" + name + "'");
        ops.push_back(Op(found - std::begin(NAMES)));
    }
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
                    if (!(places[i] >= 0 && places[i] < 1)) return false;
                if (mixes(row, at - row * steps) && !within(partners[at], 0, rows)) return false;
            }
        }
        return std::all_of(out, out + outputs, [&](int64_t row) { return within(row, 0, rows); });
    }
};

// Executes one plan. A row runs to its next stop, a step at which it mixes or is mixed in after having changed, and is
// parked there. Its parking places alternate between `beside_` and `home_`, its place in the output, so that nothing is
// overwritten while another row may still read it, and so that it ends at home.
class Execution {
  public:
    Execution(const Plan &plan, const Shape &shape, const uint8_t *images, uint8_t *out, const uint8_t *fill,
              const Normalize &normalize, int threads)
        : plan_(plan), shape_(shape), images_(images), fill_(fill), normalize_(normalize), out_(out),
          out_bytes_(shape.bytes() * std::max(1, normalize.size)), home_(size_t(plan.rows)), beside_(size_t(plan.rows)) {
        // Waking a thread costs some ten microseconds: not worth it below that much work.
        const int64_t work = plan.outputs * shape.bytes() * std::max<int64_t>(plan.steps, 1);
        threads_ = int(std::clamp<int64_t>(work >> 17, 1, std::max(threads, 1)));
        for (int64_t i = 0; i < plan.outputs; ++i) {
            uint8_t *&home = home_[size_t(plan.out[i])];
            uint8_t *place = out + i * out_bytes_;
            if (home) copies_.push_back({home, place});
            else home = place;
        }
        find_stops();
        find_phases();
    }

    void run() {
        const int64_t chunk = std::max<int64_t>(1, (64 << 10) / shape_.bytes());
        std::vector<std::atomic<int64_t>> claimed(phases_.size()), done(phases_.size());
        // Threads claim a few rows at a time, and wait only for what the next phase reads.
        const auto work = [&](uint8_t *scratch, Step *steps) {
            for (size_t p = 0; p < phases_.size(); ++p) {
                if (p)
                    while (done[p - 1].load(std::memory_order_acquire) < phases_[p - 1].awaited) std::this_thread::yield();
                const Phase &phase = phases_[p];
                const int64_t count = int64_t(phase.rows.size());
                for (int64_t start; (start = claimed[p].fetch_add(chunk)) < count;) {
                    const int64_t stop = std::min(start + chunk, count);
                    for (int64_t i = start; i < stop; ++i)
                        advance(phase.rows[size_t(i)], phase.step, steps, scratch);
                    done[p].fetch_add(std::clamp<int64_t>(phase.awaited - start, 0, stop - start), std::memory_order_release);
                }
            }
        };
        // The caller's own memory is taken here, where failing is an exception; a helper that gets none claims nothing.
        const int64_t images = (plan_.steps > 0) + std::min<int64_t>(2, plan_.steps - 1 + (normalize_.size > 0));
        const int64_t bytes = std::max<int64_t>(1, images * (shape_.bytes() + 64));
        const int64_t slots = std::max<int64_t>(1, plan_.steps);
        std::vector<Step> own(static_cast<size_t>(slots));
        if (!scratch_of_this_thread.get(bytes)) throw std::bad_alloc();
        const std::thread::id caller = std::this_thread::get_id();
        Pool::run(threads_, [&] {
            if (std::this_thread::get_id() == caller) return work(scratch_of_this_thread.get(bytes), own.data());
            const std::unique_ptr<Step[]> steps(new (std::nothrow) Step[size_t(slots)]);
            uint8_t *scratch = scratch_of_this_thread.get(bytes);
            if (scratch && steps) work(scratch, steps.get());
            scratch_of_this_thread.trim();
        });
        scratch_of_this_thread.trim();
        for (const auto &[from, to] : copies_) std::copy_n(from, out_bytes_, to);
    }

  private:
    // Rows that go on from one step; the first `awaited` of them are read later.
    struct Phase {
        int64_t step;
        std::vector<int64_t> rows;
        int64_t awaited;
    };

    // How many stops the row has from step t on if it stops there, else 0.
    int stops(int64_t row, int64_t t) const { return stops_.empty() ? 0 : stops_[size_t(row * plan_.steps + t)]; }
    const uint8_t *source(int64_t row) const { return images_ + plan_.source[row] * shape_.bytes(); }
    uint8_t *parked(int64_t row, int64_t t) const { return stops(row, t) % 2 ? beside_[size_t(row)] : home_[size_t(row)]; }

    // Goes through the steps backwards: a row is needed up to `need`, hence its partner at t up to t.
    void find_stops() {
        const int64_t rows = plan_.rows, steps = plan_.steps;
        std::vector<int64_t> need(static_cast<size_t>(rows)), first(static_cast<size_t>(rows), steps);
        bool mixing = false;
        for (int64_t row = 0; row < rows; ++row) {
            need[size_t(row)] = home_[size_t(row)] ? steps : 0;
            for (int64_t t = steps - 1; t >= 0; --t) {
                if (plan_.acts(row, t)) first[size_t(row)] = t;
                mixing |= plan_.mixes(row, t);
            }
        }
        if (!mixing) return;
        stops_.assign(size_t(rows * steps), 0);
        for (int64_t t = steps - 1; t > 0; --t)
            for (int64_t row = 0; row < rows; ++row) {
                if (need[size_t(row)] <= t || !plan_.mixes(row, t)) continue;
                const int64_t partner = plan_.partners[row * steps + t];
                if (first[size_t(partner)] >= t) continue;  // still as it came: nothing to wait for
                need[size_t(partner)] = std::max(need[size_t(partner)], t);
                stops_[size_t(row * steps + t)] = stops_[size_t(partner * steps + t)] = 1;
            }
        int64_t places = 0;
        std::vector<int> most(static_cast<size_t>(rows));
        for (int64_t row = 0; row < rows; ++row) {
            int count = 0;
            for (int64_t t = steps - 1; t >= 0; --t)
                if (int32_t &stop = stops_[size_t(row * steps + t)]) stop = ++count;
            places += (count > 0) + (count > 1 && !home_[size_t(row)]);
            most[size_t(row)] = count;
        }
        parking_ = allocate(places * shape_.bytes());
        uint8_t *place = parking_.get();
        for (int64_t row = 0; row < rows; ++row) {
            if (most[size_t(row)] > 0) beside_[size_t(row)] = place, place += shape_.bytes();
            if (most[size_t(row)] > 1 && !home_[size_t(row)]) home_[size_t(row)] = place, place += shape_.bytes();
        }
    }

    void find_phases() {
        Phase &begin = phases_.emplace_back(Phase{0, {}, 0});
        for (int64_t row = 0; row < plan_.rows; ++row)
            if (home_[size_t(row)] || beside_[size_t(row)]) begin.rows.push_back(row);
        // Those that others wait for go first, and the rest fills the time until the last of them is done.
        auto waited_for = [this](int64_t row) { return beside_[size_t(row)] != nullptr; };
        begin.awaited = std::stable_partition(begin.rows.begin(), begin.rows.end(), waited_for) - begin.rows.begin();
        for (int64_t t = 1; t < plan_.steps && !stops_.empty(); ++t) {
            Phase phase{t, {}, 0};
            for (int64_t row = 0; row < plan_.rows; ++row)
                if (stops(row, t)) phase.rows.push_back(row);
            phase.awaited = int64_t(phase.rows.size());
            if (phase.awaited) phases_.push_back(std::move(phase));
        }
    }

    // Runs a row from a step, at which it begins or was parked, to its next stop or to its end.
    void advance(int64_t row, int64_t from, Step *steps, uint8_t *scratch) const {
        const uint8_t *pixels = from ? parked(row, from) : source(row);
        int count = 0;
        int64_t t = from;
        for (; t < plan_.steps && (t == from || !stops(row, t)); ++t) {
            if (!plan_.acts(row, t)) continue;
            const int64_t at = row * plan_.steps + t;
            const size_t op = size_t(plan_.ops[at]);
            const double magnitude = plan_.meaning.rest[op] + plan_.meaning.span[op] * double(plan_.levels[at]);
            const uint8_t *partner = nullptr;
            if (plan_.mixes(row, t)) {
                const int64_t other = plan_.partners[at];
                partner = stops(row, t) && stops(other, t) ? parked(other, t) : source(other);
            }
            steps[count++] = {plan_.meaning.ops[op], magnitude, plan_.places + 4 * at, partner};
        }
        uint8_t *home = home_[size_t(row)];
        if (t < plan_.steps) {
            chosen->run(pixels, parked(row, t), steps, count, shape_, fill_, scratch);
        } else if (is_output(home)) {  // else a helper that nobody needs any further
            const uint8_t *last =
                chosen->run(pixels, normalize_.size ? nullptr : home, steps, count, shape_, fill_, scratch);
            if (normalize_.size) chosen->normalize(last, home, normalize_, shape_);
        }
    }

    bool is_output(const uint8_t *home) const { return home && home >= out_ && home < out_ + plan_.outputs * out_bytes_; }

    const Plan plan_;
    const Shape shape_;
    const uint8_t *images_, *fill_;
    const Normalize normalize_;
    uint8_t *out_;
    const int64_t out_bytes_;
    int threads_ = 1;
    std::vector<uint8_t *> home_, beside_;                 // per row; null where there is none
    std::vector<std::pair<uint8_t *, uint8_t *>> copies_;  // rows wanted more than once
    std::vector<int32_t> stops_;                           // [rows, steps]; empty where nothing mixes
    Bytes parking_;
    std::vector<Phase> phases_;
};

// glibc maps anything above 32 MiB anew each time; in huge pages its first touch costs a fraction of the faults.
void prefer_huge_pages([[maybe_unused]] uint8_t *start, [[maybe_unused]] int64_t bytes) {
#ifdef __linux__
    constexpr uintptr_t huge = 2 << 20;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(start) + huge - 1) / huge * huge;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(start) + uintptr_t(bytes)) / huge * huge;
    if (bytes > 32 << 20) madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
#endif
}

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
    prefer_huge_pages(reinterpret_cast<uint8_t *>(out), outputs * image.bytes() * std::max(1, size));
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
