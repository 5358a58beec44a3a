/* Calls every kernel of fused.c on buffers of exactly their size; built with sanitizers by test_fused.py. */
#include SOURCE
#include <stdio.h>

static float *floats(long n)
{
    float *t = malloc(n * sizeof(float));
    for (long i = 0; i < n; i++) t[i] = (float)((i * 7919) % 13) - 6;
    return t;
}

int main(void)
{
    const long widths[] = {8, 16, 24, 40};
    long calls = 0;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (long k = 1; k <= 5; k += 2)
                for (long stride = 1; stride <= 2; stride++)
                    for (long dilation = 1; dilation <= 2; dilation++)
                        for (long parts = 1; parts <= 3; parts++) {
                            const long Ci = widths[a], Co = widths[b], m = 3, H = 9, W = 11, pad = k / 2 * dilation;
                            const long Ho = (H + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
                            const long Wo = (W + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
                            float *x = floats(m * H * W * Ci), *d = floats(m * Ho * Wo * Co);
                            float *G = floats(parts * k * k * Co * Ci);
                            if (outer(x, d, G, m, H, W, Ci, Co, k, k, pad, pad, dilation, dilation, stride, stride, parts))
                                return 2;
                            if (k == 3 && stride == 1 && dilation == 1) {
                                float *w = floats(9 * Ci * Co), *out = floats(m * H * W * Co), *back = floats(m * H * W * Ci);
                                if (outer_tiles(x, d, G, m, H, W, Ci, Co, parts, 0) || outer_tiles(x, d, G, m, H, W, Ci, Co, parts, 1) ||
                                    convolve(x, w, d, out, m, H, W, Ci, Co, 0) ||
                                    convolve(d, w, NULL, back, m, H, W, Co, Ci, 1))
                                    return 2;
                                free(w), free(out), free(back);
                                calls += 4;
                            }
                            if (a == b) {
                                float *w = floats(k * k * Ci);
                                if (outer_depthwise(x, d, G, m, H, W, Ci, k, k, pad, pad, dilation, dilation, stride, stride) ||
                                    depthwise(x, w, d, m, H, W, Ci, Ho, Wo, k, k, pad, pad, dilation, dilation, stride, stride, 0) ||
                                    depthwise(d, w, x, m, H, W, Ci, Ho, Wo, k, k, pad, pad, dilation, dilation, stride, stride, 1))
                                    return 2;
                                free(w);
                                calls += 3;
                                const long p = k / 2, Hp = (H + 2 * p - k) / stride + 1, Wp = (W + 2 * p - k) / stride + 1;
                                float *out = floats(m * Hp * Wp * Ci);
                                if (pool(x, out, m, H, W, Ci, Hp, Wp, k, k, stride, stride, p, p, dilation - 1, 0) ||
                                    pool(out, x, m, H, W, Ci, Hp, Wp, k, k, stride, stride, p, p, dilation - 1, 1))
                                    return 2;
                                free(out);
                                calls += 2;
                            }
                            if (k == 1 && stride == 1) {
                                float *w = floats(Ci * Co);
                                if (pointwise(x, w, NULL, d, parts * H + 1, Ci, Co, 0) || pointwise(x, w, d, d, m * H * W, Ci, Co, 0) ||
                                    pointwise(d, w, NULL, x, m * H * W, Co, Ci, 1))
                                    return 2;
                                free(w);
                                calls += 3;
                            }
                            free(x), free(d), free(G);
                            calls++;
                        }
    for (int a = 0; a < 4; a++) {
        const long m = 3, P = 70, C = widths[a];
        float *t[4], *by_channel[5], *out = floats(m * P * C);
        double *totals = malloc(5 * m * C * sizeof(double));
        for (int i = 0; i < 4; i++) t[i] = floats(m * P * C);
        for (int i = 0; i < 5; i++) by_channel[i] = floats(C);
        sums(t[0], t[1], t[2], t[3], totals, m, P, C);
        sums(t[0], t[1], NULL, NULL, totals, m, P, C);
        combine(out, by_channel[4], (const float **)t, (const float **)by_channel, 4, m * P, C);
        const double eps = 1e-5;
        double *stats = calloc(3 * C, sizeof(double)), *means = calloc(2 * C, sizeof(double)), *four = calloc(4 * C, sizeof(double));
        for (int mean = 0; mean <= 1; mean++) {
            for (long i = 0; i < m * P * C; i++) t[0][i] += 1000 * mean;
            if (normalise(t[0], by_channel[0], mean ? NULL : by_channel[1], &eps, out, stats, m * P, C)) return 2;
        }
        for (long frozen = 0; frozen <= 1; frozen++)
            if (normalise_tangent(t[0], t[1], stats, means, NULL, out, means, m * P, C, frozen) ||
                normalise_tangent(t[0], NULL, stats, NULL, means, out, means, m * P, C, frozen) ||
                normalise_back(t[0], t[1], t[2], t[3], stats, means, means, out, t[0], four, m * P, C, frozen) ||
                normalise_back(t[0], t[1], NULL, NULL, stats, NULL, NULL, NULL, out, frozen ? NULL : four, m * P, C, frozen))
                return 2;
        free(stats), free(means), free(four);
        float *x = floats(m * 64 * C);
        double *K = calloc(m * m, sizeof(double));
        if (agreement(x, K, m, 64 * C) || gram(x, K, m, 64 * C) || gram(x, K, m, 64 * C - 3)) return 2;
        for (int i = 0; i < 4; i++) free(t[i]);
        for (int i = 0; i < 5; i++) free(by_channel[i]);
        free(out), free(totals), free(x), free(K);
        calls += 6;
    }
    printf("calls %ld\n", calls);
    return 0;
}
