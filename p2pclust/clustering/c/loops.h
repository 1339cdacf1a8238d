/* The loops over rows. kernels.h includes this file once for each instruction set, with
 *
 *   NAME(x)                    the name of a function of that set
 *   TARGET                     the attribute that lets the compiler use the set
 *   WIDTH, VECTOR, MASK        how many doubles a register holds; registers of doubles and of int64_t
 *   COLUMN(x, f)               the vector of x[0][f], x[1][f], ...
 *   ANY(mask)                  whether any of its numbers is not zero
 *   CENTERS, PANELS            a tile of distances: so many centers times panels of rows are held in registers
 *   SUM_CENTERS, SUM_COLUMNS   a tile of sums
 *
 * None of these changes a bit of the results. A distance is one chain of operations over the columns. A sum has LANES
 * chains, whatever WIDTH is: row i of a block belongs to lane i % LANES, and a lane adds its rows in their order.
 *
 * GCC 12 cannot compile a choice between a vector and zero for SSE2 ("internal compiler error"): there is none here. */

#define SAME_FOR_ALL static inline __attribute__((always_inline)) TARGET
#define SELECT(chosen, a, b) ((VECTOR)(((chosen) & (MASK)(a)) | (~(chosen) & (MASK)(b))))

SAME_FOR_ALL VECTOR NAME(root)(VECTOR x)
{
    VECTOR y;
    for (int l = 0; l < WIDTH; l++)
        y[l] = sqrt(x[l]);
    return y;
}

SAME_FOR_ALL VECTOR *NAME(panel)(const struct pass *pass, size_t at)
{
    return (VECTOR *)pass->panels + at * pass->panel_stride;
}

SAME_FOR_ALL VECTOR *NAME(of_panel)(const struct pass *pass, size_t at)
{
    return (VECTOR *)pass->distances + at * pass->distance_stride;
}

/* Read rows (at most BLOCK) minus `subtracted` into panels: WIDTH rows side by side, column after column; and their
 * squared norms. Return how many panels there are; places without a row are zero. */
TARGET static size_t NAME(fill)(const struct pass *pass, const double *restrict X, size_t n_rows)
{
    const size_t F = pass->n_columns;
    const double *restrict subtracted = pass->subtracted;
    const double *x[WIDTH];
    size_t at = 0;
    for (size_t start = 0; start < n_rows; start += WIDTH, at++) {
        const size_t here = n_rows - start < WIDTH ? n_rows - start : WIDTH;
        VECTOR *restrict panel = NAME(panel)(pass, at);
        VECTOR squares = {0};
        for (size_t l = 0; l < WIDTH * F; l += LINE) // what lies past the end is not read
            __builtin_prefetch(X + start * F + AHEAD + l);
        for (size_t l = 0; l < WIDTH; l++)
            x[l] = X + (start + (l < here ? l : 0)) * F;
        for (size_t f = 0; f < F; f++) {
            VECTOR column = COLUMN(x, f) - subtracted[f];
            for (size_t l = here; l < WIDTH; l++)
                column[l] = 0.0;
            panel[f] = column;
            squares += column * column;
        }
        ((VECTOR *)pass->squares)[at] = squares;
    }
    return at;
}

/* The same of rows in which NaN is a missing cell: it is zero in the panels, as is `present`. No squared norms. */
TARGET static size_t NAME(fill_gapped)(const struct pass *pass, const double *restrict X, size_t n_rows)
{
    const size_t F = pass->n_columns;
    const VECTOR one = (VECTOR){0} + 1.0;
    const double *x[WIDTH];
    size_t at = 0;
    for (size_t start = 0; start < n_rows; start += WIDTH, at++) {
        const size_t here = n_rows - start < WIDTH ? n_rows - start : WIDTH;
        VECTOR *restrict panel = NAME(panel)(pass, at), *restrict present = (VECTOR *)pass->present + at * pass->panel_stride;
        for (size_t l = 0; l < WIDTH; l++)
            x[l] = X + (start + (l < here ? l : 0)) * F;
        for (size_t f = 0; f < F; f++) {
            VECTOR column = COLUMN(x, f) - pass->subtracted[f];
            for (size_t l = here; l < WIDTH; l++)
                column[l] = NAN;
            const MASK there = column == column;
            panel[f] = (VECTOR)(there & (MASK)column);
            present[f] = (VECTOR)(there & (MASK)one);
        }
    }
    return at;
}

/* Squared distances of some panels to some centers over the cells that are present, by direct differences. */
SAME_FOR_ALL void NAME(gapped_tile)(const struct pass *pass, size_t first_panel, size_t first_center, const int n_panels,
                                    const int n_centers)
{
    const size_t F = pass->n_columns;
    const VECTOR *x = NAME(panel)(pass, first_panel), *present = (VECTOR *)pass->present + first_panel * pass->panel_stride;
    const double *v = pass->centers + first_center * F;
    VECTOR sums[CENTERS][PANELS];
    for (int c = 0; c < n_centers; c++)
        for (int r = 0; r < n_panels; r++)
            sums[c][r] = (VECTOR){0};
    for (size_t f = 0; f < F; f++)
        for (int r = 0; r < n_panels; r++) {
            const VECTOR column = x[r * pass->panel_stride + f], there = present[r * pass->panel_stride + f];
            for (int c = 0; c < n_centers; c++) {
                const VECTOR apart = (column - v[c * F + f]) * there;
                sums[c][r] += apart * apart;
            }
        }
    for (int r = 0; r < n_panels; r++) {
        VECTOR *d = NAME(of_panel)(pass, first_panel + r) + first_center;
        for (int c = 0; c < n_centers; c++)
            d[c] = sums[c][r];
    }
}

/* Squared distances of some panels to some centers, by |x|^2 - 2 x.v + |v|^2. */
SAME_FOR_ALL void NAME(plain_tile)(const struct pass *pass, size_t first_panel, size_t first_center, const int n_panels,
                                   const int n_centers)
{
    const size_t F = pass->n_columns;
    const VECTOR *x = NAME(panel)(pass, first_panel);
    const double *v = pass->doubled + first_center * F;
    VECTOR sums[CENTERS][PANELS];
    for (int c = 0; c < n_centers; c++)
        for (int r = 0; r < n_panels; r++)
            sums[c][r] = (VECTOR){0};
    for (size_t f = 0; f < F; f++)
        for (int r = 0; r < n_panels; r++) {
            const VECTOR column = x[r * pass->panel_stride + f];
            for (int c = 0; c < n_centers; c++)
                sums[c][r] += column * v[c * F + f];
        }
    for (int r = 0; r < n_panels; r++) {
        const VECTOR squares = ((VECTOR *)pass->squares)[first_panel + r];
        VECTOR *d = NAME(of_panel)(pass, first_panel + r) + first_center;
        for (int c = 0; c < n_centers; c++)
            d[c] = (sums[c][r] + pass->center_squares[first_center + c]) + squares;
    }
}

SAME_FOR_ALL void NAME(tile)(const struct pass *pass, size_t first_panel, size_t first_center, const int n_panels,
                             const int n_centers, const int gaps)
{
    if (gaps)
        NAME(gapped_tile)(pass, first_panel, first_center, n_panels, n_centers);
    else
        NAME(plain_tile)(pass, first_panel, first_center, n_panels, n_centers);
}

SAME_FOR_ALL void NAME(tiles)(const struct pass *pass, size_t first_panel, size_t first_center, size_t last_center,
                              const int n_panels, const int gaps)
{
    size_t c = first_center;
    for (; c + CENTERS <= last_center; c += CENTERS)
        NAME(tile)(pass, first_panel, c, n_panels, CENTERS, gaps);
    switch (last_center - c) {
    case 3: NAME(tile)(pass, first_panel, c, n_panels, 3, gaps); break;
    case 2: NAME(tile)(pass, first_panel, c, n_panels, 2, gaps); break;
    case 1: NAME(tile)(pass, first_panel, c, n_panels, 1, gaps); break;
    }
}

/* The distances of a block; so many centers at a time stay in the first cache beside a tile's panels. */
SAME_FOR_ALL void NAME(all_distances)(const struct pass *pass, size_t n_panels, const int gaps)
{
    const size_t step = pass->n_columns < IN_CACHE / CENTERS ? IN_CACHE / pass->n_columns / CENTERS * CENTERS : CENTERS;
    for (size_t c = 0; c < pass->n_centers; c += step) {
        const size_t last = c + step < pass->n_centers ? c + step : pass->n_centers;
        size_t at = 0;
        for (; at + PANELS <= n_panels; at += PANELS)
            NAME(tiles)(pass, at, c, last, PANELS, gaps);
        for (; at < n_panels; at++)
            NAME(tiles)(pass, at, c, last, 1, gaps);
    }
}

TARGET static void NAME(distances)(const struct pass *pass, size_t n_panels)
{
    if (pass->present)
        NAME(all_distances)(pass, n_panels, 1);
    else
        NAME(all_distances)(pass, n_panels, 0);
}

/* The squared distances of a panel's rows to one center, by direct differences; not of rows with gaps. */
TARGET static VECTOR NAME(direct)(const struct pass *pass, size_t at, size_t center)
{
    const VECTOR *x = NAME(panel)(pass, at);
    const double *v = pass->centers + center * pass->n_columns;
    VECTOR sum = {0};
    for (size_t f = 0; f < pass->n_columns; f++) {
        const VECTOR apart = x[f] - v[f];
        sum += apart * apart;
    }
    return sum;
}

SAME_FOR_ALL VECTOR NAME(least)(const VECTOR *d, size_t n)
{
    VECTOR least = d[0];
    for (size_t c = 1; c < n; c++)
        least = SELECT(d[c] < least, d[c], least);
    return least;
}

/* Replace the distances that are small beside the numbers that they were computed from by direct differences. Write the
 * smallest of each row to `closest`. Return the same, but for a row on a center 1, its distances being then 1 to such
 * centers and infinite to others. */
TARGET static VECTOR NAME(refine)(const struct pass *pass, size_t at, VECTOR limit, VECTOR *closest)
{
    const VECTOR zero = {0}, one = zero + 1.0, infinite = zero + (double)INFINITY;
    VECTOR *d = NAME(of_panel)(pass, at);
    for (size_t c = 0; c < pass->n_centers && !pass->present; c++) { // of rows with gaps they are direct already
        const MASK near = d[c] <= limit;
        if (ANY(near))
            d[c] = SELECT(near, NAME(direct)(pass, at, c), d[c]);
    }
    const VECTOR least = NAME(least)(d, pass->n_centers);
    *closest = least;
    const MASK on_center = least == zero;
    if (!ANY(on_center))
        return least;
    for (size_t c = 0; c < pass->n_centers; c++)
        d[c] = SELECT(on_center, SELECT(d[c] == zero, one, infinite), d[c]);
    return SELECT(on_center, one, least);
}

/* Turn a panel's squared distances into its memberships to the power of the fuzzifier, times the rows' weights; and add
 * the rows' part of the objective. */
SAME_FOR_ALL void NAME(raise)(const struct pass *pass, size_t at, const VECTOR *weights, const enum fuzzifier fuzzifier)
{
    const size_t C = pass->n_centers;
    VECTOR *d = NAME(of_panel)(pass, at), *totals = (VECTOR *)pass->weight_sums + at % (LANES / WIDTH) * C;
    const VECTOR one = (VECTOR){0} + 1.0, limit = (((VECTOR *)pass->squares)[at] + pass->largest_square) * pass->share;
    VECTOR least = NAME(least)(d, C), closest = least;
    if (ANY(least <= limit))
        least = NAME(refine)(pass, at, limit, &closest);
    VECTOR sum = {0};
    for (size_t c = 0; c < C; c++) {
        const VECTOR ratio = least / d[c];
        switch (fuzzifier) {
        case TWO:
            sum += ratio;
            d[c] = ratio;
            break;
        case ONE_AND_A_HALF:
            sum += ratio * ratio;
            d[c] = ratio * (ratio * ratio);
            break;
        case THREE: {
            const VECTOR power = NAME(root)(ratio);
            sum += power;
            d[c] = ratio * power;
        }
        }
    }
    VECTOR cost;
    switch (fuzzifier) {
    case TWO:
        sum = one / sum;
        cost = closest * sum;
        break;
    case ONE_AND_A_HALF:
        cost = closest / NAME(root)(sum);
        sum = one / (sum * NAME(root)(sum));
        break;
    case THREE:
        cost = closest / (sum * sum);
        sum = one / (sum * sum * sum);
        break;
    }
    if (weights)
        cost *= *weights;
    ((VECTOR *)pass->costs)[at % (LANES / WIDTH)] += cost;
    for (size_t c = 0; c < C; c++) {
        VECTOR u = d[c] * sum;
        if (fuzzifier == TWO)
            u *= u;
        if (weights)
            u *= *weights;
        d[c] = u;
        totals[c] += u;
    }
}

/* Add some centers' memberships times some columns of a block's panels to sums. */
SAME_FOR_ALL void NAME(add_tile)(const struct pass *pass, const double *panels, double *to, size_t n_panels,
                                 size_t first_center, size_t first_column, const int n_centers, const int n_columns)
{
    for (size_t part = 0; part < LANES / WIDTH; part++) {
        VECTOR sums[SUM_CENTERS][SUM_COLUMNS];
        for (int c = 0; c < n_centers; c++)
            for (int f = 0; f < n_columns; f++)
                sums[c][f] = (VECTOR){0};
        for (size_t at = part; at < n_panels; at += LANES / WIDTH) {
            const VECTOR *u = NAME(of_panel)(pass, at) + first_center;
            const VECTOR *x = (const VECTOR *)panels + at * pass->panel_stride + first_column;
            for (int c = 0; c < n_centers; c++)
                for (int f = 0; f < n_columns; f++)
                    sums[c][f] += u[c] * x[f];
        }
        VECTOR *all = (VECTOR *)to + (part * pass->n_centers + first_center) * pass->n_columns + first_column;
        for (int c = 0; c < n_centers; c++)
            for (int f = 0; f < n_columns; f++)
                all[c * pass->n_columns + f] += sums[c][f];
    }
}

SAME_FOR_ALL void NAME(add_columns)(const struct pass *pass, const double *panels, double *to, size_t n_panels,
                                    size_t first_center, const int n_centers)
{
    size_t f = 0;
    for (; f + SUM_COLUMNS <= pass->n_columns; f += SUM_COLUMNS)
        NAME(add_tile)(pass, panels, to, n_panels, first_center, f, n_centers, SUM_COLUMNS);
    for (; f < pass->n_columns; f++)
        NAME(add_tile)(pass, panels, to, n_panels, first_center, f, n_centers, 1);
}

TARGET static void NAME(add)(const struct pass *pass, const double *panels, double *to, size_t n_panels)
{
    size_t c = 0;
    for (; c + SUM_CENTERS <= pass->n_centers; c += SUM_CENTERS)
        NAME(add_columns)(pass, panels, to, n_panels, c, SUM_CENTERS);
    for (; c < pass->n_centers; c++)
        NAME(add_columns)(pass, panels, to, n_panels, c, 1);
}

TARGET static void NAME(fuzzy)(const struct pass *pass, const double *X, const double *weights, size_t n_rows,
                               enum fuzzifier fuzzifier)
{
    for (size_t start = 0; start < n_rows; start += BLOCK) {
        const size_t here = n_rows - start < BLOCK ? n_rows - start : BLOCK;
        const double *rows = X + start * pass->n_columns;
        const size_t n_panels = pass->present ? NAME(fill_gapped)(pass, rows, here) : NAME(fill)(pass, rows, here);
        NAME(distances)(pass, n_panels);
        for (size_t at = 0; at < n_panels; at++) {
            VECTOR own;
            const size_t first = at * WIDTH;
            const int weighted = weights || first + WIDTH > here;
            if (weighted)
                for (size_t l = 0; l < WIDTH; l++)
                    own[l] = first + l >= here ? 0.0 : weights ? weights[start + first + l] : 1.0;
            switch (fuzzifier) {
            case TWO: NAME(raise)(pass, at, weighted ? &own : NULL, TWO); break;
            case ONE_AND_A_HALF: NAME(raise)(pass, at, weighted ? &own : NULL, ONE_AND_A_HALF); break;
            case THREE: NAME(raise)(pass, at, weighted ? &own : NULL, THREE); break;
            }
        }
        NAME(add)(pass, pass->panels, pass->sums, n_panels);
        if (pass->present)
            NAME(add)(pass, pass->present, pass->cell_weights, n_panels);
    }
}

/* Write the index of each row's nearest center. Ties within the rounding error of the expanded form are settled by direct
 * differences, exact ones by the lowest index. Of rows with gaps return the squared distances to it. */
SAME_FOR_ALL VECTOR NAME(nearest)(const struct pass *pass, size_t at, int64_t *labels)
{
    const size_t C = pass->n_centers;
    const VECTOR *d = NAME(of_panel)(pass, at);
    const VECTOR zero = {0}, infinite = zero + (double)INFINITY;
    VECTOR least = infinite, second = infinite;
    VECTOR label = zero, index = zero;
    for (size_t c = 0; c < C; c++, index += 1.0) {
        const MASK better = d[c] < least;
        const VECTOR other = SELECT(better, least, d[c]);
        second = SELECT(other < second, other, second);
        least = SELECT(better, d[c], least);
        label = SELECT(better, index, label);
    }
    const VECTOR noise = (((VECTOR *)pass->squares)[at] + pass->largest_square) * pass->share;
    // The rounding error may make the least one negative; then it is no larger than the noise.
    VECTOR limit = noise + (VECTOR)((MASK)least & INT64_MAX) * (1.0 + TIE);
    if (pass->present) // these distances are direct already
        limit -= infinite;
    const MASK tied = second <= limit;
    if (ANY(tied)) {
        VECTOR closest = infinite;
        VECTOR settled = zero;
        index = zero;
        for (size_t c = 0; c < C; c++, index += 1.0) {
            const VECTOR exact = SELECT(d[c] <= limit, NAME(direct)(pass, at, c), infinite);
            const MASK better = exact < closest;
            closest = SELECT(better, exact, closest);
            settled = SELECT(better, index, settled);
        }
        label = SELECT(tied, settled, label);
    }
    for (int l = 0; l < WIDTH; l++)
        labels[l] = (int64_t)label[l];
    return least;
}

/* Assign each row to its nearest center. Of rows that weights are given for, sum the weights too. */
TARGET static void NAME(crisp)(const struct pass *pass, const double *X, const double *weights, size_t n_rows,
                               const struct cells *cells)
{
    const size_t F = pass->n_columns;
    const double *restrict subtracted = pass->subtracted;
    int64_t labels[BLOCK];
    for (size_t start = 0; start < n_rows; start += BLOCK) {
        const size_t here = n_rows - start < BLOCK ? n_rows - start : BLOCK;
        const size_t n_panels = NAME(fill)(pass, X + start * F, here);
        NAME(distances)(pass, n_panels);
        for (size_t at = 0; at < n_panels; at++)
            NAME(nearest)(pass, at, labels + at * WIDTH);
        if (cells->labels)
            memcpy(cells->labels + start, labels, here * sizeof *labels);
        for (size_t r = 0; r < here; r++) {
            const double *restrict x = X + (start + r) * F;
            double *restrict own = cells->sums + (size_t)labels[r] * F;
            cells->counts[labels[r]] += 1.0;
            if (weights) {
                const double weight = weights[start + r];
                cells->masses[labels[r]] += weight;
                for (size_t f = 0; f < F; f++)
                    own[f] += weight * (x[f] - subtracted[f]);
            } else {
                for (size_t f = 0; f < F; f++)
                    own[f] += x[f] - subtracted[f];
            }
        }
    }
}

/* Assign each row with gaps to its nearest center, and sum the cells that are present, column by column. */
TARGET static void NAME(gapped)(const struct pass *pass, const double *X, const double *weights, size_t n_rows,
                                const struct gapped_cells *cells)
{
    const size_t F = pass->n_columns;
    const double *restrict subtracted = pass->subtracted;
    for (size_t start = 0; start < n_rows; start += BLOCK) {
        const size_t here = n_rows - start < BLOCK ? n_rows - start : BLOCK;
        const size_t n_panels = NAME(fill_gapped)(pass, X + start * F, here);
        NAME(distances)(pass, n_panels);
        int64_t labels[BLOCK];
        for (size_t at = 0; at < n_panels; at++) {
            const VECTOR closest = NAME(nearest)(pass, at, labels + at * WIDTH);
            for (size_t l = 0; l < WIDTH && at * WIDTH + l < here; l++)
                cells->closest[start + at * WIDTH + l] = closest[l];
        }
        memcpy(cells->labels + start, labels, here * sizeof *labels);
        for (size_t r = 0; r < here; r++) {
            const size_t first = (size_t)labels[r] * F;
            const double *restrict x = X + (start + r) * F, *restrict v = cells->offsets + first;
            const double weight = weights ? weights[start + r] : 1.0;
            for (size_t f = 0; f < F; f++) {
                const double apart = (x[f] - subtracted[f]) - v[f];
                cells->counts[first + f] += x[f] == x[f] ? 1.0 : 0.0;
                cells->sums[first + f] += x[f] == x[f] ? weight * apart : 0.0;
            }
            for (size_t f = 0; cells->squares && f < F; f++) {
                const double apart = (x[f] - subtracted[f]) - v[f];
                cells->squares[first + f] += x[f] == x[f] ? weight * (apart * apart) : 0.0;
            }
            for (size_t f = 0; weights && f < F; f++)
                cells->masses[first + f] += x[f] == x[f] ? weight : 0.0;
        }
    }
}

/* Lower each row's squared distance to its nearest center to that of the pass's own centers, where that is smaller. */
TARGET static void NAME(lower)(const struct pass *pass, const double *X, size_t n_rows, double *closest)
{
    for (size_t start = 0; start < n_rows; start += BLOCK) {
        const size_t here = n_rows - start < BLOCK ? n_rows - start : BLOCK;
        const size_t n_panels = NAME(fill)(pass, X + start * pass->n_columns, here);
        for (size_t at = 0; at < n_panels; at++)
            for (size_t c = 0; c < pass->n_centers; c++) {
                const VECTOR squared = NAME(direct)(pass, at, c);
                double *own = closest + start + at * WIDTH;
                for (size_t l = 0; l < WIDTH && at * WIDTH + l < here; l++)
                    own[l] = squared[l] < own[l] ? squared[l] : own[l];
            }
    }
}

/* Sum the rows' differences from their centers, and the squares of these, column by column. */
TARGET static void NAME(moments)(const struct pass *pass, const double *X, const double *weights, size_t n_rows,
                                 const int64_t *labels, double *restrict sums, double *restrict squares)
{
    const size_t F = pass->n_columns;
    const double *restrict subtracted = pass->subtracted;
    for (size_t r = 0; r < n_rows; r++) {
        const size_t first = (size_t)labels[r] * F;
        const double *restrict x = X + r * F, *restrict v = pass->centers + first;
        const double weight = weights ? weights[r] : 1.0;
        for (size_t f = 0; f < F; f++) {
            const double apart = (x[f] - subtracted[f]) - v[f];
            sums[first + f] += weight * apart;
            squares[first + f] += weight * (apart * apart);
        }
    }
}

static const struct passes NAME(passes) = {WIDTH, NAME(fuzzy), NAME(crisp), NAME(gapped), NAME(lower), NAME(moments)};

#undef SAME_FOR_ALL
#undef SELECT
#undef NAME
#undef TARGET
#undef WIDTH
#undef VECTOR
#undef MASK
#undef COLUMN
#undef ANY
#undef CENTERS
#undef PANELS
#undef SUM_CENTERS
#undef SUM_COLUMNS
