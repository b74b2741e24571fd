// The parts of Apache ECharts that the report's page draws with; all else stays out of the file.
import { init, use } from "echarts/core";
import { CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";

use([CustomChart, LineChart, ScatterChart, GridComponent, TooltipComponent, LabelLayout, SVGRenderer]);

export { init };
