// The transforms on one image. CMake compiles this file once per instruction set, with OUTSPAN_ISA naming the
// namespace. It uses nothing from the standard library but C functions: an inline template compiled here for
// AVX-512 could be the copy the linker keeps for everyone.
#include "rows.h"

#include <cmath>
#include <cstring>

#if defined(__AVX512VBMI__)
#define OUTSPAN_AVX512
#include <immintrin.h>
#endif

#if defined(_MSC_VER)
#define RESTRICT __restrict
#else
#define RESTRICT __restrict__
#endif

#define OUTSPAN_TEXT_OF(name) #name
#define OUTSPAN_TEXT(name) OUTSPAN_TEXT_OF(name)

namespace outspan::OUTSPAN_ISA {
namespace {

#include "point.h"

#include "filter.h"

#include "geometry.h"

void apply_step(const Step &step, const uint8_t *in, uint8_t *out, const Shape &shape, const uint8_t *fill,
                uint8_t *scratch) {
    const double m = step.magnitude;
    switch (step.op) {
        case Op::auto_contrast: return auto_contrast(in, out, shape);
        case Op::equalize: return equalize(in, out, shape);
        case Op::invert: return invert(in, out, shape);
        case Op::brightness: return brightness_or_contrast(in, out, shape, 0, float(m));
        case Op::contrast: return brightness_or_contrast(in, out, shape, mean_luma(in, shape), float(m));
        case Op::color:
            if (shape.channels == 3) return color(in, out, shape, float(m), scratch);
            break;  // a grey image is its own grey
        case Op::sharpness: return sharpness(in, out, shape, float(m));
        case Op::posterize: return posterize(in, out, shape, m);
        case Op::solarize: return solarize(in, out, shape, m);
        case Op::rotate: return rotate(in, out, shape, m);
        case Op::shear_x: {
            const double a[6] = {1, m, 0, 0, 1, 0};
            return affine(a, in, out, shape);
        }
        case Op::shear_y: {
            const double a[6] = {1, 0, 0, m, 1, 0};
            return affine(a, in, out, shape);
        }
        case Op::translate_x: {
            const double a[6] = {1, 0, m * shape.width, 0, 1, 0};
            return affine(a, in, out, shape);
        }
        case Op::translate_y: {
            const double a[6] = {1, 0, 0, 0, 1, m * shape.height};
            return affine(a, in, out, shape);
        }
        case Op::cutout: return cutout(in, out, shape, rectangle(m, step.place, shape), fill);
        case Op::cutmix: return cutmix(in, step.partner, out, shape, rectangle(m, step.place, shape));
        case Op::mixup: return blend_images(in, step.partner, out, shape.bytes(), make_blend(float(m)));
        case Op::horizontal_flip: return horizontal_flip(in, out, shape);
        case Op::vertical_flip: return vertical_flip(in, out, shape);
        case Op::blur: return blur(in, out, shape);
        case Op::smooth: return smooth(in, out, shape);
        case Op::random_crop: return random_crop(in, out, shape, m, step.place);
        case Op::resized_crop: return resized_crop(in, out, shape, step.place, scratch);
        case Op::identity: break;
    }
    std::memcpy(out, in, size_t(shape.bytes()));
}

const uint8_t *run(const uint8_t *in, uint8_t *out, const Step *steps, int count, const Shape &shape, const uint8_t *fill,
                   uint8_t *scratch) {
    const int64_t stride = shape.bytes() + 64;
    if (!count && out) return static_cast<uint8_t *>(std::memcpy(out, in, size_t(shape.bytes())));
    // A batch is larger than the caches, and these do not read it in order. Copying an image into the cache first takes a
    // tenth of the time that they would wait.
    if (count && (steps[0].op == Op::rotate || steps[0].op == Op::shear_y))
        in = static_cast<uint8_t *>(std::memcpy(scratch + 64, in, size_t(shape.bytes())));
    for (int i = 0; i < count; ++i) {
        uint8_t *to = i == count - 1 && out ? out : scratch + (1 + (i & 1)) * stride;
        apply_step(steps[i], in, to, shape, fill, scratch);
        in = to;
    }
    return in;
}

template <typename Value>
void look_up_values(const uint8_t *RESTRICT in, Value *RESTRICT out, const Value *RESTRICT table, bool channels_last,
                    const Shape &shape) {
    const int64_t plane = shape.plane();
    const int64_t pixel = channels_last ? shape.channels : 1, channel = channels_last ? 1 : plane;
    for (int c = 0; c < shape.channels; ++c)
        for (int64_t i = 0; i < plane; ++i) out[c * channel + i * pixel] = table[c * 256 + in[c * plane + i]];
}

void normalize(const uint8_t *in, void *out, const Normalize &how, const Shape &shape) {
    if (how.size == 2)
        look_up_values(in, static_cast<uint16_t *>(out), static_cast<const uint16_t *>(how.table), how.channels_last, shape);
    else
        look_up_values(in, static_cast<uint32_t *>(out), static_cast<const uint32_t *>(how.table), how.channels_last, shape);
}

}  // namespace

extern const Kernels kernels = {OUTSPAN_TEXT(OUTSPAN_ISA), run, normalize};

}  // namespace outspan::OUTSPAN_ISA
