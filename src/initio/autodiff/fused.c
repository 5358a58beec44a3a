/* Optional kernels for float32 on one CPU thread, values channels last: (sample, row, column, channel).
 *
 * Everything here has a plain torch twin in layers.py, channels.py and recorder.py that gives the same numbers up to
 * rounding; these only read memory less often. Vectors have eight lanes; channel counts are multiples of eight (see
 * fused.py).
 * Sums over many positions are kept in float for one row of an image and then added in double. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double d8 __attribute__((vector_size(64)));

static inline v8 splat(float a) { return (v8){a, a, a, a, a, a, a, a}; }

/* Copies one image into `to`, with `pad` zero rows and columns around it. */
static void pad_image(const float *from, float *to, long H, long W, long C, long ph, long pw)
{
    const long row = (W + 2 * pw) * C;
    memset(to, 0, ph * row * sizeof(float));
    memset(to + (H + ph) * row, 0, ph * row * sizeof(float));
    for (long h = 0; h < H; h++) {
        float *line = to + (h + ph) * row;
        memset(line, 0, pw * C * sizeof(float));
        memcpy(line + pw * C, from + h * W * C, W * C * sizeof(float));
        memset(line + (pw + W) * C, 0, pw * C * sizeof(float));
    }
}

/* Q output channels x V*8 input channels of Σ_p δ(p) x(p)ᵀ over `rows` rows, added to G. */
#define OUTER(Q, V)                                                                                            \
    static inline void outer_##Q##_##V(const float *x, const float *d, float *G, long rows, long Wo, long Ci,   \
                                       long Co, long xrow, long step)                                           \
    {                                                                                                           \
        v8 acc[Q][V];                                                                                           \
        for (int q = 0; q < Q; q++)                                                                             \
            for (int v = 0; v < V; v++) acc[q][v] = *(v8 *)(G + q * Ci + 8 * v);                                \
        for (long r = 0; r < rows; r++) {                                                                       \
            const float *a = x + r * xrow, *b = d + r * Wo * Co;                                                \
            for (long c = 0; c < Wo; c++, a += step, b += Co) {                                                 \
                v8 in[V];                                                                                       \
                for (int v = 0; v < V; v++) in[v] = *(const v8 *)(a + 8 * v);                                   \
                for (int q = 0; q < Q; q++) {                                                                   \
                    const v8 s = splat(b[q]);                                                                   \
                    for (int v = 0; v < V; v++) acc[q][v] += s * in[v];                                         \
                }                                                                                               \
            }                                                                                                   \
        }                                                                                                       \
        for (int q = 0; q < Q; q++)                                                                             \
            for (int v = 0; v < V; v++) *(v8 *)(G + q * Ci + 8 * v) = acc[q][v];                                \
    }
OUTER(6, 2) OUTER(4, 2) OUTER(2, 2) OUTER(2, 1)

/* G (KH, KW, Co, Ci) of every sample, or their sum when `each` is 0. */
int outer(const float *x, const float *d, float *G, long m, long H, long W, long Ci, long Co, long KH, long KW, long ph,
          long pw, long dh, long dw, long sh, long sw, long each)
{
    const long Hp = H + 2 * ph, Wp = W + 2 * pw, row = Wp * Ci, size = KH * KW * Co * Ci;
    const long Ho = (Hp - dh * (KH - 1) - 1) / sh + 1, Wo = (Wp - dw * (KW - 1) - 1) / sw + 1;
    const long block = Wo >= 64 ? 1 : 64 / Wo; /* rows at a time: about 64 positions */
    const int padded = ph || pw;
    float *scratch = padded ? malloc(Hp * row * sizeof(float)) : NULL;
    if (padded && !scratch) return 1;
    memset(G, 0, (each ? m : 1) * size * sizeof(float));
    for (long n = 0; n < m; n++) {
        const float *image = x + n * H * W * Ci, *delta = d + n * Ho * Wo * Co;
        float *g = G + (each ? n * size : 0);
        if (padded) {
            pad_image(image, scratch, H, W, Ci, ph, pw);
            image = scratch;
        }
        for (long h = 0; h < Ho; h += block) {
            const long rows = Ho - h < block ? Ho - h : block;
            for (long k = 0; k < KH * KW; k++) {
                const float *a = image + (h * sh + (k / KW) * dh) * row + (k % KW) * dw * Ci;
                for (long co = 0; co < Co;) {
                    const long left = Co - co, q = left >= 6 ? 6 : left >= 4 ? 4 : 2;
                    const float *b = delta + h * Wo * Co + co;
                    for (long ci = 0; ci + 16 <= Ci; ci += 16) {
                        float *to = g + (k * Co + co) * Ci + ci;
                        if (q == 6) outer_6_2(a + ci, b, to, rows, Wo, Ci, Co, sh * row, sw * Ci);
                        else if (q == 4) outer_4_2(a + ci, b, to, rows, Wo, Ci, Co, sh * row, sw * Ci);
                        else outer_2_2(a + ci, b, to, rows, Wo, Ci, Co, sh * row, sw * Ci);
                    }
                    if (Ci % 16) /* the last eight */
                        for (long o = 0; o < q; o += 2)
                            outer_2_1(a + Ci - 8, b + o, g + (k * Co + co + o) * Ci + Ci - 8, rows, Wo, Ci, Co, sh * row, sw * Ci);
                    co += q;
                }
            }
        }
    }
    free(scratch);
    return 0;
}

/* For every sample and channel the sums over positions of a, a*b, a*e, c, c*b (c and e may be missing): out (5, m, C). */
void sums(const float *a, const float *b, const float *c, const float *e, double *out, long m, long P, long C)
{
    const long run = 64; /* positions summed in float before they go to double */
    for (long n = 0; n < m; n++)
        for (long k = 0; k < C; k += 8) {
            d8 total[5] = {{0}};
            for (long start = 0; start < P; start += run) {
                v8 s[5];
                for (int i = 0; i < 5; i++) s[i] = splat(0);
                const long stop = start + run < P ? start + run : P;
                for (long p = start; p < stop; p++) {
                    const long at = (n * P + p) * C + k;
                    const v8 va = *(const v8 *)(a + at), vb = *(const v8 *)(b + at);
                    s[0] += va;
                    s[1] += va * vb;
                    if (e) s[2] += va * *(const v8 *)(e + at);
                    if (c) {
                        const v8 vc = *(const v8 *)(c + at);
                        s[3] += vc;
                        s[4] += vc * vb;
                    }
                }
                for (int i = 0; i < 5; i++) total[i] += __builtin_convertvector(s[i], d8);
            }
            for (int i = 0; i < 5; i++)
                for (int l = 0; l < 8; l++) out[(i * m + n) * C + k + l] = total[i][l];
        }
}

/* out = constant + Σ_i coefficient_i t_i, constants and coefficients by channel, up to four terms. */
void combine(float *out, const float *constant, const float **t, const float **coefficient, long terms, long rows, long C)
{
    for (long r = 0; r < rows; r++)
        for (long k = 0; k < C; k += 8) {
            v8 s = *(const v8 *)(constant + k);
            for (long i = 0; i < terms; i++) s += *(const v8 *)(t[i] + r * C + k) * *(const v8 *)(coefficient[i] + k);
            *(v8 *)(out + r * C + k) = s;
        }
}

/* The signs of 64 numbers as bits: 1 where positive. */
static inline uint64_t signs(const float *x)
{
    uint64_t word = 0;
#ifdef __AVX__
    for (int b = 0; b < 8; b++) {
        const __m256 positive = _mm256_cmp_ps(_mm256_loadu_ps(x + 8 * b), _mm256_setzero_ps(), _CMP_GT_OQ);
        word |= (uint64_t)_mm256_movemask_ps(positive) << (8 * b);
    }
#else
    for (int b = 0; b < 64; b++) word |= (uint64_t)(x[b] > 0) << b;
#endif
    return word;
}

/* K_ij += number of units on which the signs of inputs i and j agree. x (m, F), F a multiple of 64. */
int agreement(const float *x, double *K, long m, long F)
{
    const long words = F / 64;
    uint64_t *bits = malloc(m * words * sizeof(uint64_t));
    if (!bits) return 1;
    for (long i = 0; i < m * words; i++) bits[i] = signs(x + i * 64);
    for (long i = 0; i < m; i++)
        for (long j = 0; j <= i; j++) {
            long differ = 0;
            for (long w = 0; w < words; w++) differ += __builtin_popcountll(bits[i * words + w] ^ bits[j * words + w]);
            K[i * m + j] += F - differ;
            if (i != j) K[j * m + i] += F - differ;
        }
    free(bits);
    return 0;
}
