"""What kind of thing x is, and what that alone decides."""

from unnorm.spaces.arrays import AbstractArray as AbstractArray
from unnorm.spaces.arrays import Binary as Binary
from unnorm.spaces.arrays import Categorical as Categorical
from unnorm.spaces.arrays import Real as Real
from unnorm.spaces.base import AbstractOnRealRows as AbstractOnRealRows
from unnorm.spaces.base import AbstractOnRows as AbstractOnRows
from unnorm.spaces.base import AbstractSpace as AbstractSpace
from unnorm.spaces.graph import Graph as Graph
from unnorm.spaces.mixed import AnyNumbers as AnyNumbers
from unnorm.spaces.mixed import Conditioned as Conditioned
from unnorm.spaces.mixed import Mixed as Mixed
from unnorm.spaces.mixed import WithCondition as WithCondition
from unnorm.spaces.rows import finite_rows as finite_rows
from unnorm.spaces.rows import numbers as numbers
from unnorm.spaces.rows import real_rows as real_rows
