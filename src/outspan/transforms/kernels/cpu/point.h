// Pixel by pixel: tables, histograms and blends. Included by rows.cpp inside its namespace.

struct Table {
    alignas(64) uint8_t values[3][256];
};

// out[i] = table[in[i]]
void look_up(const uint8_t *RESTRICT in, uint8_t *RESTRICT out, int64_t count, const uint8_t *RESTRICT table) {
#ifdef OUTSPAN_AVX512
    const __m512i t0 = _mm512_load_si512(table), t1 = _mm512_load_si512(table + 64);
    const __m512i t2 = _mm512_load_si512(table + 128), t3 = _mm512_load_si512(table + 192);
    auto pick = [&](__m512i index) {
        const __m512i low = _mm512_permutex2var_epi8(t0, index, t1);
        const __m512i high = _mm512_permutex2var_epi8(t2, index, t3);
        return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
    };
    int64_t i = 0;
    for (; i + 64 <= count; i += 64) _mm512_storeu_si512(out + i, pick(_mm512_loadu_si512(in + i)));
    if (i < count) {
        const __mmask64 tail = (1ull << (count - i)) - 1;
        _mm512_mask_storeu_epi8(out + i, tail, pick(_mm512_maskz_loadu_epi8(tail, in + i)));
    }
#else
    for (int64_t i = 0; i < count; ++i) out[i] = table[in[i]];
#endif
}

// The same table for every channel.
void look_up_all(const uint8_t *in, uint8_t *out, const Shape &shape, const uint8_t *table) {
    look_up(in, out, shape.bytes(), table);
}

void look_up_each(const uint8_t *in, uint8_t *out, const Shape &shape, const Table &table) {
    for (int c = 0; c < shape.channels; ++c)
        look_up(in + c * shape.plane(), out + c * shape.plane(), shape.plane(), table.values[c]);
}

// Pillow's blend of two bytes: a + alpha * (b - a) in single precision, clipped, then truncated.
inline uint8_t blend_float(int a, int b, float alpha) {
    const float value = float(a) + alpha * float(b - a);
    return uint8_t(int(value < 0.0f ? 0.0f : value > 255.0f ? 255.0f : value));
}

void brightness_or_contrast(const uint8_t *in, uint8_t *out, const Shape &shape, int pivot, float factor) {
    alignas(64) uint8_t table[256];
    for (int v = 0; v < 256; ++v) table[v] = blend_float(pivot, v, factor);
    look_up_all(in, out, shape, table);
}

// A blend in 16-bit integers that is proved, for this alpha, to give what the float formula gives:
// a + whole * d + ((d * fraction + bias) >> 16) with d = b - a. `exact` is false where there is no such line.
struct Blend {
    float alpha;
    int16_t whole, fraction;
    uint16_t bias;
    bool exact;
};

// Finds the bias with which a fraction gives floor(alpha * d) for every d: each d bounds it from below and from above.
inline bool find_bias(Blend &blend) {
    int low = 0, high = 65535, carries = 0;
    for (int d = -255; d <= 255; ++d) {
        const float product = blend.alpha * float(d);
        const int truncated = int(product);
        const int floored = truncated - (product < float(truncated));
        const int least = (floored - blend.whole * d) * 65536 - d * blend.fraction;
        low = least > low ? least : low;
        high = least + 65535 < high ? least + 65535 : high;
        // Adding an integer below 512 rounds to a multiple of 2^-15, so a remainder this close to one could carry.
        carries |= product - float(floored) > 1.0f - 1.0f / 16384;
    }
    blend.bias = uint16_t(low);
    return low <= high && !carries;
}

Blend make_blend(float alpha) {
    const int whole = int(alpha + 0.5f);
    const int below = int(std::floor((double(alpha) - whole) * 65536.0));
    for (int fraction = below; fraction <= below + 1; ++fraction) {
        Blend blend = {alpha, int16_t(whole), int16_t(fraction), 0, true};
        if (-32768 <= fraction && fraction <= 32767 && find_bias(blend)) return blend;
    }
    return {alpha, 0, 0, 0, false};
}

inline uint8_t blend_fixed(int16_t a, int16_t b, const Blend &blend) {
    const int16_t d = int16_t(b - a);
    const uint16_t low = uint16_t(d * blend.fraction), high = uint16_t((int32_t(d) * int32_t(blend.fraction)) >> 16);
    const uint16_t carry = uint16_t(low + blend.bias) < low;
    const int16_t value = int16_t(a + blend.whole * d + high + carry);
    return uint8_t(value < 0 ? 0 : value > 255 ? 255 : value);
}

void blend_images(const uint8_t *RESTRICT a, const uint8_t *RESTRICT b, uint8_t *RESTRICT out, int64_t count,
                  const Blend &how) {
    const Blend blend = how;  // by value: stores to `out` must not make the compiler reload it
    if (blend.exact)
        for (int64_t i = 0; i < count; ++i) out[i] = blend_fixed(a[i], b[i], blend);
    else
        for (int64_t i = 0; i < count; ++i) out[i] = blend_float(a[i], b[i], blend.alpha);
}

// ITU-R BT.601 in 1/65536, Pillow's "L".
inline int luma(int r, int g, int b) { return (19595 * r + 38470 * g + 7471 * b + 32768) >> 16; }

void color(const uint8_t *RESTRICT in, uint8_t *RESTRICT out, const Shape &shape, float factor, uint8_t *RESTRICT grey) {
    const int64_t plane = shape.plane();
    const uint8_t *RESTRICT r = in, *RESTRICT g = in + plane, *RESTRICT b = in + 2 * plane;
    for (int64_t i = 0; i < plane; ++i) grey[i] = uint8_t(luma(r[i], g[i], b[i]));
    const Blend blend = make_blend(factor);
    for (int c = 0; c < 3; ++c) blend_images(grey, in + c * plane, out + c * plane, plane, blend);
}

// Contrast pivots on the mean of the "L" image, rounded as Pillow rounds it.
int mean_luma(const uint8_t *RESTRICT in, const Shape &shape) {
    const int64_t plane = shape.plane();
    const uint8_t *RESTRICT r = in, *RESTRICT g = in + plane, *RESTRICT b = in + 2 * plane;
    uint64_t total = 0;
    for (int64_t start = 0; start < plane; start += 1 << 16) {  // a 32-bit sum holds 65,536 bytes and more
        const int64_t stop = start + (1 << 16) < plane ? start + (1 << 16) : plane;
        uint32_t sum = 0;
        if (shape.channels == 1)
            for (int64_t i = start; i < stop; ++i) sum += in[i];
        else
            for (int64_t i = start; i < stop; ++i) sum += uint32_t(luma(r[i], g[i], b[i]));
        total += sum;
    }
    return int(double(total) / double(plane) + 0.5);
}

void identity_table(uint8_t *table) {
    for (int v = 0; v < 256; ++v) table[v] = uint8_t(v);
}

void auto_contrast(const uint8_t *RESTRICT in, uint8_t *RESTRICT out, const Shape &shape) {
    Table table;
    for (int c = 0; c < shape.channels; ++c) {
        const uint8_t *RESTRICT plane = in + c * shape.plane();
        uint8_t low = 255, high = 0;
        for (int64_t i = 0; i < shape.plane(); ++i) {
            low = plane[i] < low ? plane[i] : low;
            high = plane[i] > high ? plane[i] : high;
        }
        if (high <= low) {
            identity_table(table.values[c]);
            continue;
        }
        const double scale = 255.0 / (high - low), offset = -double(low) * scale;
        for (int v = 0; v < 256; ++v) {
            const int value = int(v * scale + offset);
            table.values[c][v] = uint8_t(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    look_up_each(in, out, shape, table);
}

void equalize(const uint8_t *in, uint8_t *out, const Shape &shape) {
    Table table;
    const int64_t count = shape.plane();
    for (int c = 0; c < shape.channels; ++c) {
        const uint8_t *plane = in + c * count;
        // Four histograms, so that equal neighbours do not wait for one another's increment.
        alignas(64) uint32_t parts[4][256];
        std::memset(parts, 0, sizeof parts);
        int64_t i = 0;
        for (; i + 8 <= count; i += 8) {
            uint64_t eight;
            std::memcpy(&eight, plane + i, 8);
            ++parts[0][eight & 255], ++parts[1][eight >> 8 & 255];
            ++parts[2][eight >> 16 & 255], ++parts[3][eight >> 24 & 255];
            ++parts[0][eight >> 32 & 255], ++parts[1][eight >> 40 & 255];
            ++parts[2][eight >> 48 & 255], ++parts[3][eight >> 56];
        }
        for (; i < count; ++i) ++parts[0][plane[i]];
        uint32_t *histogram = parts[0];
        for (int v = 0; v < 256; ++v) histogram[v] += parts[1][v] + parts[2][v] + parts[3][v];
        int last = 255;
        while (!histogram[last]) --last;
        const uint32_t step = uint32_t(count - histogram[last]) / 255;
        if (!step) {
            identity_table(table.values[c]);
            continue;
        }
        // Division by a run-time constant: exact in double precision, as both sides are below 2^32.
        alignas(64) uint32_t below[256];
        for (uint32_t v = 0, n = step / 2; v < 256; n += histogram[v], ++v) below[v] = n;
        for (int v = 0; v < 256; ++v) {
            const int value = int(double(below[v]) / double(step));
            table.values[c][v] = uint8_t(value > 255 ? 255 : value);
        }
    }
    look_up_each(in, out, shape, table);
}

void invert(const uint8_t *RESTRICT in, uint8_t *RESTRICT out, const Shape &shape) {
    const int64_t count = shape.bytes();
    for (int64_t i = 0; i < count; ++i) out[i] = uint8_t(255 - in[i]);
}

void posterize(const uint8_t *RESTRICT in, uint8_t *RESTRICT out, const Shape &shape, double bits) {
    const uint8_t mask = uint8_t(0xFF00 >> int(std::nearbyint(bits)));
    const int64_t count = shape.bytes();
    for (int64_t i = 0; i < count; ++i) out[i] = in[i] & mask;
}

void solarize(const uint8_t *in, uint8_t *out, const Shape &shape, double threshold) {
    alignas(64) uint8_t table[256];
    for (int v = 0; v < 256; ++v) table[v] = uint8_t(v < int(threshold) ? v : 255 - v);
    look_up_all(in, out, shape, table);
}
