// What the executor (module.cpp) and the row kernels (rows.cpp, compiled once per instruction set) share.
#pragma once

#include <cstdint>

namespace outspan {

// One entry per transform the kernel knows; module.cpp gives Python the same names.
enum class Op : int8_t {
    identity,
    auto_contrast,
    equalize,
    invert,
    brightness,
    color,
    contrast,
    sharpness,
    posterize,
    solarize,
    rotate,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    cutout,
    mixup,
    cutmix,
    horizontal_flip,
    vertical_flip,
    blur,
    smooth,
    random_crop,
    resized_crop,
};

struct Shape {
    int channels, height, width;
    int64_t plane() const { return int64_t(height) * width; }
    int64_t bytes() const { return channels * plane(); }
};

// One transform of one row, its magnitude in the transform's own unit.
struct Step {
    Op op;
    double magnitude;
    const float *place;      // 4 numbers in [0, 1)
    const uint8_t *partner;  // the image mixed in, or null
};

// The last step: a table of 256 values a channel, each `size` bytes wide, looked up for every pixel.
struct Normalize {
    const void *table;
    int size;  // 2 or 4; 0 leaves the bytes as they are
    bool channels_last;
};

struct Kernels {
    const char *name;
    // Applies `count` steps to the image at `in`, writes the result to `out`, which does not overlap, and returns it;
    // where `out` is null the result is in `scratch`, or, of no steps, `in` itself. `scratch` holds, each with 64 bytes
    // after it, one image for a step's own use and up to two between steps.
    const uint8_t *(*run)(const uint8_t *in, uint8_t *out, const Step *steps, int count, const Shape &shape,
                const uint8_t *fill, uint8_t *scratch);
    void (*normalize)(const uint8_t *in, void *out, const Normalize &how, const Shape &shape);
};

namespace baseline { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }

}  // namespace outspan
