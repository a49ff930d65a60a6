"""Marks: annotations that formulations put on their main block, for the rule that schedules it."""

PRODUCT = "autotune.product"
"""Annotation of a product's block, as integers: whether each operand is contiguous along the reduction, and a third
integer if the operands are transforms."""
TRANSFORM = "autotune.transform"
"""Annotation of a block that transforms tiles, in the registers of one work-item or as vectors: see `winograd`
and `winograd_gemm`. On a `TRANSFORMED` product it is the rows of tiles of an image; on its result, the side."""
WINDOW = "autotune.window"
"""Annotation of a depthwise kernel's block: whether its result is filters, its stride and its dilation."""
FEW_CHANNELS = "autotune.few_channels"
"""Annotation of the block that sums: whether it is a gradient, the filter's rows and columns, and the stride."""
REGISTER_PRODUCT = "autotune.register_product"
"""Annotation of a product's block, whose last axis is contiguous in the result and in one operand."""
ANY_COLUMNS, ALL_COLUMNS, APART, TRANSFORMED = 1, 2, 3, 4
"""Values of `REGISTER_PRODUCT`: a tile may have some columns; or must have all, since they are added up next; or
may have some, and what follows has another shape, so that it runs after all tiles; or the product is one of
transforms, and each share of its rows is transformed, multiplied and transformed back at once."""
VECTOR_ROWS = "autotune.vector_rows"
"""Annotation of the block that sums windows, row by row of a plane."""
ROWS = "autotune.rows"
"""Annotation of the block that sums blocks of rows."""
JOINED = "autotune.joined_parts"
"""Annotation of the block that joins parts: the largest number of channels that divides them all."""
