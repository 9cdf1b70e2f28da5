package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonPrimitive;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hive.common.type.HiveChar;
import org.apache.hadoop.hive.common.type.HiveDecimal;
import org.apache.hadoop.hive.common.type.HiveVarchar;
import org.apache.hadoop.hive.serde2.objectinspector.StandardUnionObjectInspector.StandardUnion;
import org.apache.hadoop.hive.serde2.typeinfo.CharTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.DecimalTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.ListTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.MapTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.PrimitiveTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.StructTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.UnionTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.VarcharTypeInfo;

/**
 * One JSON notation for Hive's values, from every reader.
 *
 * <p>Integers, finite floating numbers, booleans and strings are themselves; decimals, dates, timestamps and non-finite
 * numbers are strings; binary is lower-case hex; a char is padded; a list or struct is an array; a map is an array of
 * [key, value] ordered by the key's text; a union is [tag, value].
 */
final class Values {
  private Values() {}

  static JsonElement primitive(Object value) {
    if (value instanceof BigDecimal) {
      return new JsonPrimitive(value.toString());
    }
    if (value instanceof Number && Double.isFinite(((Number) value).doubleValue())) {
      return new JsonPrimitive((Number) value);
    }
    if (value instanceof Boolean) {
      return new JsonPrimitive((Boolean) value);
    }
    if (value instanceof byte[]) {
      StringBuilder hex = new StringBuilder();
      for (byte each : (byte[]) value) {
        hex.append(String.format("%02x", each));
      }
      return new JsonPrimitive(hex.toString());
    }
    if (value instanceof HiveChar) {
      return new JsonPrimitive(((HiveChar) value).getPaddedValue());
    }
    return new JsonPrimitive(value.toString());
  }

  /** Inverse: a value as Hive's standard Java object of a type. */
  static Object parse(JsonElement json, TypeInfo type) {
    if (json.isJsonNull()) {
      return null;
    }
    switch (type.getCategory()) {
      case LIST: {
        List<Object> list = new ArrayList<>();
        for (JsonElement each : json.getAsJsonArray()) {
          list.add(parse(each, ((ListTypeInfo) type).getListElementTypeInfo()));
        }
        return list;
      }
      case MAP: {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (JsonElement each : json.getAsJsonArray()) {
          map.put(
              parse(each.getAsJsonArray().get(0), ((MapTypeInfo) type).getMapKeyTypeInfo()),
              parse(each.getAsJsonArray().get(1), ((MapTypeInfo) type).getMapValueTypeInfo()));
        }
        return map;
      }
      case STRUCT: {
        List<Object> fields = new ArrayList<>();
        List<TypeInfo> types = ((StructTypeInfo) type).getAllStructFieldTypeInfos();
        for (int i = 0; i < types.size(); i++) {
          fields.add(parse(json.getAsJsonArray().get(i), types.get(i)));
        }
        return fields;
      }
      case UNION: {
        byte tag = json.getAsJsonArray().get(0).getAsByte();
        TypeInfo chosen = ((UnionTypeInfo) type).getAllUnionObjectTypeInfos().get(tag);
        return new StandardUnion(tag, parse(json.getAsJsonArray().get(1), chosen));
      }
      default:
        return parse(json.getAsString(), (PrimitiveTypeInfo) type);
    }
  }

  private static Object parse(String text, PrimitiveTypeInfo type) {
    switch (type.getPrimitiveCategory()) {
      case BOOLEAN:
        return Boolean.valueOf(text);
      case BYTE:
        return Byte.valueOf(text);
      case SHORT:
        return Short.valueOf(text);
      case INT:
        return Integer.valueOf(text);
      case LONG:
        return Long.valueOf(text);
      case FLOAT:
        return Float.valueOf(text);
      case DOUBLE:
        return Double.valueOf(text);
      case STRING:
        return text;
      case CHAR:
        return new HiveChar(text, ((CharTypeInfo) type).getLength());
      case VARCHAR:
        return new HiveVarchar(text, ((VarcharTypeInfo) type).getLength());
      case DATE:
        return Line.date(text);
      case TIMESTAMP:
        return Line.timestamp(text);
      case DECIMAL:
        return HiveDecimal.enforcePrecisionScale(HiveDecimal.create(new BigDecimal(text)),
            ((DecimalTypeInfo) type).precision(), ((DecimalTypeInfo) type).scale());
      case BINARY: {
        byte[] bytes = new byte[text.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
          bytes[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
      }
      default:
        throw new IllegalArgumentException("no notation for values of type " + type);
    }
  }
}
